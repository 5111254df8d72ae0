// Loaded before a program (LD_PRELOAD), refuses one allocation at a time: the file that
// FAILING_MALLOC names holds two 64-bit numbers, shared with whoever maps it as well: how many
// allocations from now on the next one is that fails (0: none), and how many there have been.
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

struct control {
  _Atomic int64_t countdown, count;
};

static struct control nobody;
static struct control* control = &nobody;

__attribute__((constructor)) static void open_control(void) {
  const char* path = getenv("FAILING_MALLOC");
  const int file = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) control = mapped;
}

static int fails(void) {
  atomic_fetch_add(&control->count, 1);
  if (atomic_load(&control->countdown) <= 0) return 0;
  if (atomic_fetch_sub(&control->countdown, 1) != 1) return 0;
  errno = ENOMEM;
  return 1;
}

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
