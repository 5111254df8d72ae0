// What to load and unload so that what serves becomes what should. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/models/model_repository.h"

namespace onnxd {

using VersionKey = std::pair<std::string, std::string>;  // model, version

struct KnownVersion {
  uint64_t fingerprint;
  bool serving;  // false: its load failed
};

struct Reconciliation {
  std::vector<WantedVersion> load;
  std::vector<VersionKey> unload;
};

// Loads wanted versions that are unknown or whose files have changed, a failed one not before they
// do. What is not wanted any more goes once all that its model wants is serving, so that a version
// that fails leaves the old one in place, and a faulty model.yaml all; or at once when the model is
// gone.
Reconciliation Reconcile(const std::vector<WantedVersion>& wanted,
                         const std::map<VersionKey, KnownVersion>& known);

}  // namespace onnxd
