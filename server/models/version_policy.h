// Which of the versions on disk serve, and what follows from what serves already. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// models.versions: "all", "latest" (the newest), "latest:N" (the N newest) or numbers separated by
// commas.
struct VersionPolicy {
  int64_t latest = 1;             // 0: all, unless there are numbers
  std::vector<int64_t> specific;  // ascending
};

// kInvalidArgument says what was expected.
Result<VersionPolicy> ParseVersionPolicy(const std::string& text);

// Of these version numbers, in ascending order.
std::vector<int64_t> ChooseVersions(std::vector<int64_t> available, const VersionPolicy& policy);

}  // namespace onnxd
