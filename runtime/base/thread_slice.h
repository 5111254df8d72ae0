// How long this thread wants to compute at a stretch.
#pragma once

#include <chrono>

namespace onnxd {

// From 100 us to 100 ms: a thread of short slices comes to work soon after it wakes, before those of
// longer ones, and has no larger share of the processor for it (EEVDF; sched_setattr(2) with
// SCHED_OTHER, Linux 6.12). Earlier systems know nothing of it, and nothing changes there.
void RequestSlice(std::chrono::nanoseconds slice);

}  // namespace onnxd
