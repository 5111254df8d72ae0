// ShadowTarget: the version of a model that gets copies of the requests that others answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "server/config/rollout_settings.h"

namespace onnxd {

// Any thread.
class ShadowTarget {
 public:
  struct Copy {
    std::string version;
    double tolerance;
  };

  // From now on; an empty version: none.
  void Follow(const ShadowSettings& settings);
  // Where a copy of a request goes that `answering` answers: for the settings' share of them,
  // spread evenly.
  std::optional<Copy> Take(const std::string& answering);

 private:
  std::atomic<bool> active_{false};
  std::mutex mutex_;
  ShadowSettings settings_;  // guarded by mutex_
  int64_t part_ = 0;         // of the next copy, in percent; guarded by mutex_
};

}  // namespace onnxd
