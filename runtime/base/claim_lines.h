// ClaimLines: asking for memory before writing it, where threads share work.
#pragma once

#include <algorithm>
#include <cstddef>

namespace onnxd {

// Brings lines that this thread is about to write to its core, as far as they may stay there. The
// memory of one step is that of an earlier one, whose lines other cores may have: stores wait for
// them one after the other, while a core asks for many at once. With one thread it is not worth
// calling.
inline void ClaimLines(const void* first, size_t bytes) {
  constexpr size_t kLine = 64, kMost = size_t{256} << 10;
  const auto* at = static_cast<const char*>(first);
  const auto* const end = at + std::min(bytes, kMost);
  for (; at < end; at += kLine) {
#if defined(__x86_64__)
    // Not __builtin_prefetch, which without a target's leave only reads.
    __asm__ volatile("prefetchw %0" : : "m"(*at));
#else
    __builtin_prefetch(at, 1);
#endif
  }
}

}  // namespace onnxd
