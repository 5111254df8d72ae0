#include "server/models/version_policy.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

Result<int64_t> Positive(const std::string& text, const std::string& whole) {
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < 1) {
    return InvalidArgument(
        StrCat("'", whole.substr(0, 64), "' is not all, latest, latest:N or versions like 3,7"));
  }
  return number;
}

}  // namespace

Result<VersionPolicy> ParseVersionPolicy(const std::string& text) {
  VersionPolicy policy;
  if (text == "latest") return policy;
  if (text == "all") {
    policy.latest = 0;
    return policy;
  }
  if (text.starts_with("latest:")) {
    ONNXD_ASSIGN_OR_RETURN(policy.latest, Positive(text.substr(7), text));
    return policy;
  }
  policy.latest = 0;
  for (const std::string& part : SplitList(text, ',')) {
    ONNXD_ASSIGN_OR_RETURN(const int64_t number, Positive(part, text));
    policy.specific.push_back(number);
  }
  if (policy.specific.empty()) return Positive("", text).status();
  std::sort(policy.specific.begin(), policy.specific.end());
  return policy;
}

std::vector<int64_t> ChooseVersions(std::vector<int64_t> available, const VersionPolicy& policy) {
  std::sort(available.begin(), available.end());
  if (!policy.specific.empty()) {
    std::erase_if(available, [&](int64_t version) {
      return !std::binary_search(policy.specific.begin(), policy.specific.end(), version);
    });
    return available;
  }
  const auto most = static_cast<size_t>(policy.latest);
  if (policy.latest > 0 && available.size() > most) {
    available.erase(available.begin(), available.end() - static_cast<ptrdiff_t>(most));
  }
  return available;
}

}  // namespace onnxd
