// ModelRepository: what is on disk.
//
//   FOLDER/NAME/VERSION/model.onnx   a repository
//   FILE.onnx                        one model, version 1
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/models/version_policy.h"

namespace onnxd {

// A version that should serve. `fingerprint` changes with any file beside the model's: names,
// sizes, times and inodes, not contents.
struct WantedVersion {
  std::string model, version, path;
  uint64_t fingerprint = 0;
  int64_t changed = 0;  // the newest of those times, seconds since 1970
};

// The versions to serve from a repository folder or model file, ordered by name and number. Names
// that begin with a dot are ignored; versions are numbers. `model_name` renames a single file.
// kNotFound when `path` does not exist, kInvalidArgument when it is neither a file nor a folder or
// too much is in it, kUnavailable when it cannot be read. A folder without models is empty.
Result<std::vector<WantedVersion>> ScanRepository(const std::string& path,
                                                  const std::string& model_name,
                                                  const VersionPolicy& policy);

// Of the version's files as they are now.
uint64_t FingerprintOf(const WantedVersion& version);

// Whether a text may name a model: 1 to 128 characters, none of them control characters or slashes.
bool IsModelName(const std::string& name);

}  // namespace onnxd
