// Which version a request means that names a label, or none. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "server/config/rollout_settings.h"

namespace onnxd {

// The version whose share the request at `point` (RoutePoint) falls into, of those for which
// `serves`: one that does not leaves its requests to the first that does. Shares lie side by side
// in their order, so that one that grows keeps its requests; they begin elsewhere with each
// `model`. Without a point, the first. Empty: no version that serves has a share.
std::string ShareAt(std::optional<uint64_t> point, const std::string& model,
                    const RolloutSettings& rollout,
                    const std::function<bool(const std::string&)>& serves);

// `wanted`, but labels of versions that do not serve yet stay where they are in `now`.
RolloutSettings MoveLabels(const RolloutSettings& now, RolloutSettings wanted,
                           const std::function<bool(const std::string&)>& serves);

}  // namespace onnxd
