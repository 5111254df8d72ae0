// Loaded before a program (LD_PRELOAD), refuses one allocation, or one opening or reading of a file,
// at a time: the file that FAULTS names holds six 64-bit numbers, shared with whoever maps it as
// well: how many allocations from now on the next one is that fails (0: none), and how many there
// have been; then the same for open and pread, which fail with EIO; then how many calls of accept
// fail from now on, and with what errno. FAULTS_THREADS is the number of threads that may start.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

struct counter {
  _Atomic int64_t countdown, count;
};

struct control {
  struct counter memory, files;
  _Atomic int64_t refused_connections, refusal;
};

static struct control nobody;
static struct control* control = &nobody;
static int ready;

__attribute__((constructor)) static void open_control(void) {
  const char* path = getenv("FAULTS");
  const int file = path != NULL ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) control = mapped;
  ready = 1;
}

static int falls_due(struct counter* counter, int error) {
  atomic_fetch_add(&counter->count, 1);
  if (!ready || atomic_load(&counter->countdown) <= 0) return 0;
  if (atomic_fetch_sub(&counter->countdown, 1) != 1) return 0;
  errno = error;
  return 1;
}

static int fails(void) { return falls_due(&control->memory, ENOMEM); }
static int file_fails(void) { return falls_due(&control->files, EIO); }

void* malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return fails() ? NULL : __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) {
  return fails() ? NULL : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  void* memory = memalign(alignment, size);
  if (memory == NULL) return ENOMEM;
  *result = memory;
  return 0;
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return file_fails() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

ssize_t pread(int file, void* buffer, size_t size, off_t offset) {
  return file_fails() ? -1 : syscall(SYS_pread64, file, buffer, size, offset);
}
ssize_t pread64(int file, void* buffer, size_t size, off_t offset) __attribute__((alias("pread")));

static int refuses_connection(void) {
  if (!ready || atomic_load(&control->refused_connections) <= 0) return 0;
  atomic_fetch_sub(&control->refused_connections, 1);
  errno = (int)atomic_load(&control->refusal);
  return 1;
}

int accept4(int listener, struct sockaddr* address, socklen_t* size, int flags) {
  if (refuses_connection()) return -1;
  return (int)syscall(SYS_accept4, listener, address, size, flags);
}
int accept(int listener, struct sockaddr* address, socklen_t* size) {
  return accept4(listener, address, size, 0);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  typedef int (*create_function)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static _Atomic int started;
  const char* most = getenv("FAULTS_THREADS");
  if (most != NULL && atomic_fetch_add(&started, 1) >= atoi(most)) return EAGAIN;
  const create_function create = (create_function)dlsym(RTLD_NEXT, "pthread_create");
  return create(thread, attributes, run, argument);
}
