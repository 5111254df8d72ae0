// What was changed of models' labels and splits by request, over what their files say.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/config/rollout_settings.h"

namespace onnxd {

// One request: what it does not name stays as it is.
struct RolloutChange {
  std::map<std::string, std::string> labels;                 // an empty version: as in the file
  std::optional<std::vector<RolloutSettings::Share>> split;  // empty: as in the file
};

struct RolloutOverlay {
  std::map<std::string, std::string> labels;
  std::vector<RolloutSettings::Share> split;  // empty: as in the file
  bool operator==(const RolloutOverlay&) const = default;
};
using RolloutOverlays = std::map<std::string, RolloutOverlay>;  // by model

RolloutOverlay Changed(RolloutOverlay overlay, const RolloutChange& change);
RolloutSettings Over(RolloutSettings file, const RolloutOverlay& overlay);

// In a file `rollouts` of the folder, which is made if it is not there. Written aside, then
// renamed: a reader sees the old ones or the new ones. kUnavailable when it cannot be written.
Status WriteRollouts(const std::string& folder, const RolloutOverlays& overlays);

// None without a file. Errors as ReadStateFile has them.
Result<RolloutOverlays> ReadRollouts(const std::string& folder);

}  // namespace onnxd
