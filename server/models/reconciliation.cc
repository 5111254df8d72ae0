#include "server/models/reconciliation.h"

#include <set>

namespace onnxd {

Reconciliation Reconcile(const std::vector<WantedVersion>& wanted,
                         const std::map<VersionKey, KnownVersion>& known) {
  Reconciliation result;
  std::set<VersionKey> keys;
  std::set<std::string> incomplete;  // models of which something wanted does not serve
  for (const WantedVersion& version : wanted) {
    const VersionKey key(version.model, version.version);
    keys.insert(key);
    const auto found = known.find(key);
    const bool changed = found == known.end() || found->second.fingerprint != version.fingerprint;
    if (changed) result.load.push_back(version);
    const bool serves = found != known.end() && found->second.serving;
    // A faulty file does not say which versions it wants.
    if (!serves || !version.fault.ok()) incomplete.insert(version.model);
  }
  for (const auto& [key, version] : known) {
    if (!keys.contains(key) && !incomplete.contains(key.first)) result.unload.push_back(key);
  }
  return result;
}

}  // namespace onnxd
