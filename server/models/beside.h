// A long piece of work on a thread of its own, while its owner looks after other things.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace onnxd {

enum class WorkPriority { kNormal, kLow };  // low: requests' threads come first (nice 10)

// Runs `work` on a new thread and calls `meanwhile` about every 10 ms until it has ended. False
// when `most` passed before: then the thread goes on alone, and `work` must own all that it
// touches. Where no more threads may be started it runs here, however long it takes.
bool RunBeside(std::function<void()> work, WorkPriority priority,
               std::chrono::steady_clock::duration most, const std::function<void()>& meanwhile);

// Whether such a thread still goes on alone: the process must not end by destroying its statics.
bool WorkIsLeftBehind();

}  // namespace onnxd
