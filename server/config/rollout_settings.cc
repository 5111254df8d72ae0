#include "server/config/rollout_settings.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostLabels = 64, kMostShares = 16;
constexpr int64_t kMostWeight = 1'000'000;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool IsLabelPart(char c) {
  return IsLetter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// As folders of versions are named.
Result<std::string> VersionText(const std::string& text) {
  const auto number = ParseNumber(text, 1, std::numeric_limits<int64_t>::max());
  if (!number.ok()) return InvalidArgument("must be the number of a version");
  return StrCat(*number);
}

}  // namespace

const std::vector<OptionKey<RollbackSettings>>& RollbackKeys() {
  using R = RollbackSettings;
  static const std::vector<OptionKey<R>> keys = {
      NumberKey("error_percent", &R::error_percent, 0, 99),
      NumberKey("latency_percent", &R::latency_percent, 0, 1'000'000),
      NumberKey("mismatch_percent", &R::mismatch_percent, 0, 99),
      NumberKey("min_requests", &R::min_requests, 1, 1'000),
  };
  return keys;
}

const std::vector<OptionKey<ShadowSettings>>& ShadowKeys() {
  using S = ShadowSettings;
  static const std::vector<OptionKey<S>> keys = {
      {.section = "",
       .key = "version",
       .unit = "",
       .set = [](S& shadow, const std::string& text) -> Status {
         if (text.empty() || IsLabel(text)) return shadow.version = text, Status::Ok();
         ONNXD_ASSIGN_OR_RETURN(shadow.version, VersionText(text));
         return Status::Ok();
       },
       .get = [](const S& shadow) { return shadow.version; }},
      NumberKey("percent", &S::percent, 0, 100),
      {.section = "",
       .key = "tolerance",
       .unit = "",
       .set = [](S& shadow, const std::string& text) -> Status {
         double value = 0;
         const char* const end = text.data() + text.size();
         const auto [stop, error] = std::from_chars(text.data(), end, value);
         if (error != std::errc() || stop != end || !(value >= 0 && value <= 1)) {
           return InvalidArgument("must be a number from 0 to 1");
         }
         shadow.tolerance = value;
         return Status::Ok();
       },
       .get = [](const S& shadow) { return StrCat(shadow.tolerance); }},
  };
  return keys;
}

std::vector<std::string> RolloutSettings::Versions() const {
  std::vector<std::string> versions;
  for (const auto& [label, version] : labels) versions.push_back(version);
  for (const Share& share : split) versions.push_back(Resolve(share.version));
  if (!shadow.version.empty()) versions.push_back(Resolve(shadow.version));
  return versions;
}

const std::string& RolloutSettings::Resolve(const std::string& version) const {
  const auto label = labels.find(version);
  return label == labels.end() ? version : label->second;
}

bool IsLabel(const std::string& text) {
  return !text.empty() && text.size() <= 64 && IsLetter(text[0]) && text != "latest" &&
         std::all_of(text.begin(), text.end(), IsLabelPart);
}

Status AddLabel(const std::string& label, const std::string& version, RolloutSettings& rollout) {
  if (!IsLabel(label)) {
    return InvalidArgument(
        "a label is a letter, then letters, digits, '-', '_' and '.', 64 in all");
  }
  if (rollout.labels.size() == kMostLabels) {
    return InvalidArgument(StrCat("there may be ", kMostLabels, " labels"));
  }
  ONNXD_ASSIGN_OR_RETURN(rollout.labels[label], VersionText(version));
  return Status::Ok();
}

Status AddShare(const std::string& version, const std::string& weight, RolloutSettings& rollout) {
  if (rollout.split.size() == kMostShares) {
    return InvalidArgument(StrCat("there may be ", kMostShares, " shares"));
  }
  RolloutSettings::Share share{version, 0};
  if (!IsLabel(version)) {
    ONNXD_ASSIGN_OR_RETURN(share.version, VersionText(version));
  }
  ONNXD_ASSIGN_OR_RETURN(share.weight, ParseNumber(weight, 0, kMostWeight));
  rollout.split.push_back(std::move(share));
  return Status::Ok();
}

Status CheckRollout(const RolloutSettings& rollout) {
  const std::string& shadow = rollout.shadow.version;
  if (IsLabel(shadow) && !rollout.labels.contains(shadow)) {
    return InvalidArgument(StrCat("'shadow.version': no version has the label '", shadow, "'"));
  }
  if (rollout.split.empty()) return Status::Ok();
  for (const auto& share : rollout.split) {
    if (IsLabel(share.version) && !rollout.labels.contains(share.version)) {
      return InvalidArgument(StrCat("'split.", share.version, "': no version has this label"));
    }
  }
  const bool some = std::any_of(rollout.split.begin(), rollout.split.end(),
                                [](const auto& share) { return share.weight > 0; });
  return some ? Status::Ok() : InvalidArgument("'split': all shares are zero");
}

}  // namespace onnxd
