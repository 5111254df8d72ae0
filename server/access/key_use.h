// KeyUse: how much of its limits a key has used.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/base/status.h"

namespace onnxd {

// Any thread.
class KeyUse : public std::enable_shared_from_this<KeyUse> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Counts a request that comes at `now` until the place is gone. kResourceExhausted beyond `rate`
  // requests a second, of which one second's may come at once, or `concurrency` at once; 0: any.
  Result<std::shared_ptr<const void>> Enter(int64_t rate, int64_t concurrency, Time now);

 private:
  std::mutex mutex_;
  double used_ = 0;      // of this second's requests, as of last_; guarded by mutex_
  Time last_{};          // guarded by mutex_
  int64_t running_ = 0;  // guarded by mutex_
};

}  // namespace onnxd
