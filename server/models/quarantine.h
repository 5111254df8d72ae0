// Quarantine: versions that were rolled back, which stay away, by the contents of their files and
// under whatever number, until they are released.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/models/model_repository.h"

namespace onnxd {

struct QuarantineEntry {
  std::string model, version;
  std::string contents;  // HashContents
  std::string reason;
  bool operator==(const QuarantineEntry&) const = default;
};

// One thread.
class Quarantine {
 public:
  void Add(QuarantineEntry entry);
  // Removes the entries of the version; false for none.
  bool Release(const std::string& model, const std::string& version);
  // The reason why the version stays away, if it does. Reads its files where its model has entries
  // and they have changed since; what cannot be read is not held.
  std::optional<std::string> Holds(const WantedVersion& version);
  const std::vector<QuarantineEntry>& entries() const { return entries_; }

 private:
  std::optional<std::string> ContentsOf(const WantedVersion& version);

  struct Known {
    uint64_t fingerprint;
    std::string contents;
  };
  std::vector<QuarantineEntry> entries_;
  std::map<std::string, Known> known_;  // by path
};

// In a file `quarantine` of the folder, which is made if it is not there. Written aside, then
// renamed: a reader sees the old entries or the new ones. kUnavailable when it cannot be written.
Status WriteQuarantine(const std::string& folder, const Quarantine& quarantine);

// Empty without a file, or a folder. Errors as ReadStateFile has them.
Result<Quarantine> ReadQuarantine(const std::string& folder);

}  // namespace onnxd
