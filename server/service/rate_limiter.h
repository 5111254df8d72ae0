// RateLimiter: how many requests a second a model takes, and of each key.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/base/status.h"
#include "server/config/model_settings.h"

namespace onnxd {

// Any thread.
class RateLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Counts a request of the model by a key; empty: it has none, and only the model's own limit
  // holds. kResourceExhausted beyond the settings, then it counts nowhere.
  Status Enter(const std::string& model, const RateLimitSettings& settings, const std::string& key,
               Time now);

 private:
  std::mutex mutex_;
  // When the next request would be on time if they came evenly (generic cell rate algorithm, ITU-T
  // I.371), by model and key; guarded by mutex_.
  std::map<std::pair<std::string, std::string>, Time> next_;
};

}  // namespace onnxd
