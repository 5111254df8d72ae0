// Whose memory is given up when more is needed. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/models/reconciliation.h"

namespace onnxd {

struct ResidentVersion {
  VersionKey key;
  int64_t bytes = 0;
  bool kept = false;  // does not serve: kept for a return to it
  bool pinned = false;
  bool busy = false;                     // has requests
  std::chrono::nanoseconds resident{0};  // since it was loaded
  std::chrono::nanoseconds unused{0};    // since its last request
};

// Which to unload so that `needed` bytes come free, in this order: versions kept for a return, then
// those without requests that are neither pinned nor younger than `least_resident`, the longest
// unused first. Nothing when all of these together would not do.
//
// What was just loaded stays a while, so that two models that do not fit together take turns
// instead of evicting each other with each request.
std::optional<std::vector<VersionKey>> ChooseEvictions(std::vector<ResidentVersion> resident,
                                                       int64_t needed,
                                                       std::chrono::nanoseconds least_resident);

}  // namespace onnxd
