#include "server/models/rollout_overlay.h"

#include <filesystem>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"
#include "server/models/model_repository.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "rollouts";
constexpr const char* kFirstLine = "onnxd rollouts 1";
constexpr uint64_t kMostBytes = 16 << 20;

// A line each, of words: neither models nor labels have spaces.
std::string TextOf(const RolloutOverlays& overlays) {
  std::string text = StrCat(kFirstLine, "\n");
  size_t lines = 0;
  for (const auto& [model, overlay] : overlays) {
    for (const auto& [label, version] : overlay.labels) {
      text += StrCat("label ", model, " ", label, " ", version, "\n");
      ++lines;
    }
    for (const auto& share : overlay.split) {
      text += StrCat("share ", model, " ", share.version, " ", share.weight, "\n");
      ++lines;
    }
  }
  return StrCat(text, lines, " lines\n");  // whole, if it ends so
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
  std::error_code error;
  fs::create_directories(folder, error);
  return ReplaceFile((fs::path(folder) / kFile).string(), TextOf(overlays), 0600);
}

Result<RolloutOverlays> ReadRollouts(const std::string& folder) {
  const std::string path = (fs::path(folder) / kFile).string();
  std::error_code error;
  RolloutOverlays overlays;
  if (folder.empty() || !fs::exists(path, error)) return overlays;
  ONNXD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  const auto lines = SplitList(text, '\n');
  bool known = true;
  for (size_t i = 1; i + 1 < lines.size(); ++i) known = AddLine(lines[i], overlays) && known;
  if (known && TextOf(overlays) == text) return overlays;
  return Status(StatusCode::kDataLoss, StrCat(path, " is damaged"));
}

}  // namespace onnxd
