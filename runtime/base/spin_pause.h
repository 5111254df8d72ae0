// SpinPause: what a thread does between two looks at what another one is about to change.
#pragma once

namespace onnxd {

// Lets the core's other hardware thread go first, for some tens of cycles.
inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace onnxd
