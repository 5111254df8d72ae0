// LockBriefly: for mutexes that nobody holds for longer than a microsecond.
#pragma once

#include <mutex>

#include "runtime/base/spin_pause.h"

namespace onnxd {

// The mutex, locked. Tries for about as long as others hold it before it sleeps, which takes ten
// times as long: what glibc's adaptive mutexes do, for one that a condition variable waits with.
inline std::unique_lock<std::mutex> LockBriefly(std::mutex& mutex) {
  constexpr int kTries = 50;
  for (int i = 0; i < kTries; ++i) {
    std::unique_lock lock(mutex, std::try_to_lock);
    if (lock.owns_lock()) return lock;
    SpinPause();
  }
  return std::unique_lock(mutex);
}

}  // namespace onnxd
