// How long a thread computes at a stretch.
#pragma once

#include <chrono>

namespace onnxd {

// From 100 us to 100 ms: a thread of short slices comes to work soon after it wakes, before those
// of longer ones, and has no larger share of the processor for it (EEVDF; sched_setattr(2) with
// SCHED_OTHER, Linux 6.12). Earlier systems know nothing of it, and nothing changes there.
void RequestSlice(std::chrono::nanoseconds slice);

// Lets other threads run on this processor (sched_yield) when this thread last did so, here, longer
// ago than that. A thread that has run ahead of its share, if only by what one request takes,
// otherwise waits behind one that computes until the kernel's next tick: 4 ms where CONFIG_HZ is
// 250.
void YieldEvery(std::chrono::nanoseconds interval);

}  // namespace onnxd
