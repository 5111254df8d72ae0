#include "server/access/key_use.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<std::shared_ptr<const void>> KeyUse::Enter(int64_t rate, int64_t concurrency, Time now) {
  std::lock_guard lock(mutex_);
  if (concurrency > 0 && running_ >= concurrency) {
    return ResourceExhausted(StrCat("the key has its ", concurrency, " requests at once"));
  }
  if (rate > 0) {
    const double passed = std::chrono::duration<double>(now - last_).count();
    used_ = std::max(0.0, used_ - std::max(0.0, passed) * static_cast<double>(rate));
    last_ = now;
    if (used_ + 1 > static_cast<double>(rate)) {
      return ResourceExhausted(StrCat("the key has its ", rate, " requests a second"));
    }
    used_ += 1;
  }
  if (concurrency <= 0) return std::shared_ptr<const void>();
  ++running_;
  return std::shared_ptr<const void>(this, [self = shared_from_this()](const void*) {
    std::lock_guard left(self->mutex_);
    --self->running_;
  });
}

}  // namespace onnxd
