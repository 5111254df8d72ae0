// ModelRepository: what is on disk.
//
//   FOLDER/NAME/VERSION/model.onnx   a repository; the newest version of each name is wanted
//   FILE.onnx                        one model, version 1
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct WantedVersion {
  std::string model, version, path;
};

// The versions to serve from a repository folder or model file, ordered by name. Names that begin
// with a dot are ignored; versions are numbers. `model_name` renames a single file. kNotFound when
// `path` does not exist, kInvalidArgument when nothing in it is a model.
Result<std::vector<WantedVersion>> ScanRepository(const std::string& path,
                                                  const std::string& model_name);

// Whether a text may name a model: 1 to 128 characters, none of them control characters or slashes.
bool IsModelName(const std::string& name);

}  // namespace onnxd
