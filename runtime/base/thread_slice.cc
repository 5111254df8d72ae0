#include "runtime/base/thread_slice.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

namespace onnxd {
namespace {

// As the kernel has it (sched/types.h), which the C library does not show everywhere.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;
};

}  // namespace

void RequestSlice(std::chrono::nanoseconds slice) {
#ifdef SYS_sched_setattr
  SchedulingAttributes attributes;
  attributes.nice = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
  attributes.runtime = static_cast<uint64_t>(slice.count());
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
#else
  (void)slice;
#endif
}

void YieldEvery(std::chrono::nanoseconds interval) {
  using Clock = std::chrono::steady_clock;
  static thread_local Clock::time_point last;
  const auto now = Clock::now();
  if (now - last < interval) return;
  last = now;
  std::this_thread::yield();
}

}  // namespace onnxd
