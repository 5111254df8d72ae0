#include "server/models/version_routing.h"

#include "server/inference/route_point.h"

namespace onnxd {

std::string ShareAt(std::optional<uint64_t> point, const std::string& model,
                    const RolloutSettings& rollout,
                    const std::function<bool(const std::string&)>& serves) {
  uint64_t total = 0;
  for (const auto& share : rollout.split) total += static_cast<uint64_t>(share.weight);
  const uint64_t turned = point ? *point + RoutePoint(model) : 0;
  const auto place = static_cast<uint64_t>(static_cast<unsigned __int128>(turned) * total >> 64);
  std::string first;
  uint64_t end = 0;
  for (const auto& share : rollout.split) {
    const uint64_t begin = end;
    end += static_cast<uint64_t>(share.weight);
    const std::string& version = rollout.Resolve(share.version);
    if (begin == end || !serves(version)) continue;
    if (begin <= place && place < end) return version;
    if (first.empty()) first = version;
  }
  return first;
}

RolloutSettings MoveLabels(const RolloutSettings& now, RolloutSettings wanted,
                           const std::function<bool(const std::string&)>& serves) {
  for (auto& [label, version] : wanted.labels) {
    const auto before = now.labels.find(label);
    if (before != now.labels.end() && !serves(version) && serves(before->second)) {
      version = before->second;
    }
  }
  return wanted;
}

}  // namespace onnxd
