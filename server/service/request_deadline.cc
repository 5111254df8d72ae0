#include "server/service/request_deadline.h"

#include <algorithm>

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Clock::duration kLongestWay = std::chrono::milliseconds(5);

Clock::duration WayOfAnswer(Clock::duration patience) {
  return std::clamp(patience / 20, Clock::duration::zero(), kLongestWay);
}

}  // namespace

std::optional<Clock::time_point> RequestDeadline(const InferenceRequest& request,
                                                 const BatchingOptions& settings,
                                                 Clock::time_point now) {
  const Clock::time_point arrived = request.origin.arrived;
  std::optional<Clock::time_point> end = request.deadline;
  const auto shorten = [&end](Clock::time_point other) {
    end = end ? std::min(*end, other) : other;
  };
  if (request.timeout && settings.allow_timeout_override) {
    shorten(arrived + *request.timeout);
  } else if (settings.default_timeout_ms > 0) {
    shorten(now + std::chrono::milliseconds(settings.default_timeout_ms));
  }
  if (end) *end -= WayOfAnswer(*end - arrived);
  return end;
}

}  // namespace onnxd
