#include "server/models/shadow_target.h"

#include "runtime/base/lock_briefly.h"

namespace onnxd {

void ShadowTarget::Follow(const ShadowSettings& settings) {
  std::lock_guard lock(mutex_);
  settings_ = settings;
  active_ = !settings.version.empty() && settings.percent > 0;
}

std::optional<ShadowTarget::Copy> ShadowTarget::Take(const std::string& answering) {
  if (!active_.load(std::memory_order_relaxed)) return std::nullopt;
  const auto lock = LockBriefly(mutex_);
  if (answering == settings_.version) return std::nullopt;
  part_ += settings_.percent;
  if (part_ < 100) return std::nullopt;
  part_ -= 100;
  return Copy{settings_.version, settings_.tolerance};
}

}  // namespace onnxd
