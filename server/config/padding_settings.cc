#include "server/config/padding_settings.h"

#include <set>

#include "runtime/base/str_cat.h"

namespace onnxd {

Status CheckPadding(const std::vector<PaddedDimension>& padding) {
  std::set<std::string> names;
  for (const PaddedDimension& padded : padding) {
    if (padded.dimension.empty()) return InvalidArgument("padding: it names no dimension");
    const auto refuse = [&](const std::string& why) {
      return InvalidArgument(StrCat("padding: dimension '", padded.dimension, "' ", why));
    };
    if (!names.insert(padded.dimension).second) return refuse("stands twice");
    if (padded.sizes.empty()) return refuse("has no sizes");
    if (padded.values.empty()) return refuse("has no values for its inputs");
    if (!padded.mask.empty() && !padded.values.contains(padded.mask)) {
      return refuse(StrCat("has no value for its mask '", padded.mask, "'"));
    }
  }
  return Status::Ok();
}

std::string Describe(const std::vector<PaddedDimension>& padding) {
  std::string out;
  for (const PaddedDimension& padded : padding) {
    out += StrCat(padded.dimension, "\n", StrJoin(padded.sizes, ","), "\n", padded.mask, "\n",
                  padded.tolerance, "\n");
    for (const auto& [input, value] : padded.values) out += StrCat(input, "\n", value, "\n");
  }
  return out;
}

}  // namespace onnxd
