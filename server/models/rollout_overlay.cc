#include "server/models/rollout_overlay.h"

#include <sstream>

#include "runtime/base/str_cat.h"
#include "server/models/model_repository.h"
#include "server/models/state_file.h"

namespace onnxd {
namespace {

constexpr StateFile kFile{"rollouts", "rollouts", "lines"};

// Of words: neither models nor labels have spaces.
std::vector<std::string> LinesOf(const RolloutOverlays& overlays) {
  std::vector<std::string> lines;
  for (const auto& [model, overlay] : overlays) {
    for (const auto& [label, version] : overlay.labels) {
      lines.push_back(StrCat("label ", model, " ", label, " ", version));
    }
    for (const auto& share : overlay.split) {
      lines.push_back(StrCat("share ", model, " ", share.version, " ", share.weight));
    }
  }
  return lines;
}

// False: it says nothing known.
bool AddLine(const std::string& line, RolloutOverlays& overlays) {
  std::istringstream words(line);
  std::string what, model, name, value;
  if (!(words >> what >> model >> name >> value) || !IsModelName(model)) return false;
  RolloutSettings read;
  RolloutOverlay& overlay = overlays[model];
  if (what == "label" && AddLabel(name, value, read).ok()) {
    overlay.labels.merge(read.labels);
    return true;
  }
  if (what != "share" || !AddShare(name, value, read).ok()) return false;
  overlay.split.push_back(read.split[0]);
  return true;
}

}  // namespace

RolloutOverlay Changed(RolloutOverlay overlay, const RolloutChange& change) {
  for (const auto& [label, version] : change.labels) {
    if (version.empty()) {
      overlay.labels.erase(label);
    } else {
      overlay.labels[label] = version;
    }
  }
  if (change.split) overlay.split = *change.split;
  return overlay;
}

RolloutSettings Over(RolloutSettings file, const RolloutOverlay& overlay) {
  for (const auto& [label, version] : overlay.labels) file.labels[label] = version;
  if (!overlay.split.empty()) file.split = overlay.split;
  return file;
}

Status WriteRollouts(const std::string& folder, const RolloutOverlays& overlays) {
  return WriteStateFile(folder, kFile, LinesOf(overlays));
}

Result<RolloutOverlays> ReadRollouts(const std::string& folder) {
  ONNXD_ASSIGN_OR_RETURN(const auto lines, ReadStateFile(folder, kFile));
  RolloutOverlays overlays;
  for (const std::string& line : lines) {
    if (!AddLine(line, overlays)) return DamagedStateFile(folder, kFile);
  }
  if (LinesOf(overlays) != lines) return DamagedStateFile(folder, kFile);
  return overlays;
}

}  // namespace onnxd
