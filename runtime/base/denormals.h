// How the calling thread computes with denormal floats (below 1.18e-38): as IEEE 754 has it, or as
// zeros, which processors are faster with.
#pragma once

#include <cstdint>

namespace onnxd {

// The thread's mode as the processor keeps it; for handing it to another thread.
inline uint64_t FloatingPointMode() {
#if defined(__x86_64__)
  return __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
#else
  return 0;
#endif
}

inline void SetFloatingPointMode([[maybe_unused]] uint64_t mode) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(static_cast<unsigned>(mode));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(mode));
#endif
}

// While it lives, the calling thread takes denormal operands and results for zeros if `enabled`.
class DenormalsAsZero {
 public:
  explicit DenormalsAsZero(bool enabled) : before_(FloatingPointMode()) {
#if defined(__x86_64__)
    constexpr uint64_t kFlush = 0x8040;  // FTZ and DAZ
#elif defined(__aarch64__)
    constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ
#else
    constexpr uint64_t kFlush = 0;
#endif
    if (enabled) SetFloatingPointMode(before_ | kFlush);
  }
  ~DenormalsAsZero() { SetFloatingPointMode(before_); }
  DenormalsAsZero(const DenormalsAsZero&) = delete;
  DenormalsAsZero& operator=(const DenormalsAsZero&) = delete;

 private:
  uint64_t before_;
};

}  // namespace onnxd
