#include "server/models/eviction.h"

#include <algorithm>

namespace onnxd {

std::optional<std::vector<VersionKey>> ChooseEvictions(std::vector<ResidentVersion> resident,
                                                       int64_t needed,
                                                       std::chrono::nanoseconds least_resident) {
  std::erase_if(resident, [&](const ResidentVersion& version) {
    if (version.busy) return true;
    return !version.kept && (version.pinned || version.resident < least_resident);
  });
  std::stable_sort(resident.begin(), resident.end(),
                   [](const ResidentVersion& a, const ResidentVersion& b) {
                     return a.kept != b.kept ? a.kept : a.unused > b.unused;
                   });
  std::vector<VersionKey> chosen;
  for (const ResidentVersion& version : resident) {
    if (needed <= 0) break;
    chosen.push_back(version.key);
    needed -= version.bytes;
  }
  if (needed > 0) return std::nullopt;
  return chosen;
}

}  // namespace onnxd
