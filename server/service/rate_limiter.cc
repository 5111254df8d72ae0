#include "server/service/rate_limiter.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Time = RateLimiter::Time;

struct Pace {
  std::chrono::nanoseconds interval;  // between requests that come evenly
  std::chrono::nanoseconds ahead;     // how early one may come
};

Pace PaceOf(int64_t per_second, int64_t burst) {
  const std::chrono::nanoseconds interval(1'000'000'000 / per_second);
  const int64_t at_once = burst > 0 ? burst : per_second;
  constexpr int64_t kHour = 3'600'000'000'000;
  return {interval, std::chrono::nanoseconds(std::min(kHour / interval.count(), at_once - 1) *
                                             interval.count())};
}

}  // namespace

Status RateLimiter::Enter(const std::string& model, const RateLimitSettings& settings,
                          const std::string& key, Time now) {
  const int64_t of_model = settings.requests_per_second;
  const int64_t of_key = key.empty() ? 0 : settings.key_requests_per_second;
  if (of_model == 0 && of_key == 0) return Status::Ok();
  std::lock_guard lock(mutex_);
  Time* model_next = nullptr;
  Pace model_pace{};
  if (of_model > 0) {
    model_pace = PaceOf(of_model, settings.burst);
    model_next = &next_[{model, ""}];
    if (*model_next - now > model_pace.ahead) {
      return ResourceExhausted(StrCat("model '", model, "' takes ", of_model,
                                      " requests a second (rate_limit.requests_per_second)"));
    }
  }
  if (of_key > 0) {
    const Pace pace = PaceOf(of_key, settings.key_burst);
    Time& next = next_[{model, key}];
    if (next - now > pace.ahead) {
      return ResourceExhausted(StrCat("model '", model, "' takes ", of_key,
                                      " requests a second of one key "
                                      "(rate_limit.key_requests_per_second)"));
    }
    next = std::max(next, now) + pace.interval;
  }
  if (model_next != nullptr) *model_next = std::max(*model_next, now) + model_pace.interval;
  return Status::Ok();
}

}  // namespace onnxd
