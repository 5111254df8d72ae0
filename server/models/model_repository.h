// ModelRepository: what is on disk.
//
//   FOLDER/NAME/VERSION/model.onnx   a repository
//   FOLDER/NAME/model.yaml           what this model wants otherwise than others (ModelSettings);
//                                    that of an ensemble is all there need be
//   FOLDER/NAME/config.pbtxt         the same as Triton has it, where there is no model.yaml
//
// and where that has no models:
//
//   FOLDER/VERSION/model.onnx        one model, with the files above beside its versions
//   FOLDER/MLmodel                   one model as MLflow saves it, version 1
//   FOLDER/model.onnx                one model, version 1, with the files above beside it; also
//                                    under another name, where the folder has no other .onnx
//   FOLDER/onnx/model.onnx           the same, as a clone from the Hugging Face hub has it
//
//   FILE.onnx                        one model, version 1
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/content_hash.h"
#include "runtime/base/status.h"
#include "server/config/server_options.h"
#include "server/models/rollout_overlay.h"
#include "server/models/version_policy.h"

namespace onnxd {

// A version that should serve. `fingerprint` changes with any file beside the model's (names,
// sizes, times and inodes, not contents) and with the settings.
struct WantedVersion {
  std::string model, version, path;
  uint64_t fingerprint = 0;
  int64_t changed = 0;  // the newest of those times, seconds since 1970
  int64_t bytes = 0;    // of those files
  uint64_t needs = 0;   // of an ensemble: part of its fingerprint, changes with its models
  ModelSettings settings;
  Status fault;  // why it cannot be loaded: a bad model.yaml
};

struct RepositoryOptions {
  std::vector<std::string> paths;  // folders, or one file
  std::string model_name;          // of one model; empty: the file's stem, or the folder's name
  ModelSettings defaults;          // of what a model.yaml does not say
  RolloutOverlays rollouts;        // over what a model.yaml says
  // Of a model, Triton's configuration as JSON: in place of its file, but for its rollout.
  std::map<std::string, std::string> configs;
  // Called with what stands in a model's folder and looks like a version, but is none.
  std::function<void(const std::string& path)> note_ignored;
  // Of versions in folders: as if they were not there. Null: none.
  std::function<bool(const WantedVersion&)> is_withheld;
};

RepositoryOptions RepositoryOptionsOf(const ServerOptions& options);

// The versions to serve, ordered by name and number, ensembles after the models that they need.
// Names that begin with a dot are ignored; versions are numbers. kNotFound when a path does not
// exist; kInvalidArgument when one is neither a file nor a folder, two folders have a model of the
// same name, or the defaults are wrong; kUnavailable when one cannot be read; kResourceExhausted
// when too much is in it. A folder without models is empty.
Result<std::vector<WantedVersion>> ScanRepository(const RepositoryOptions& options);

// Of the version's files as they are now, and its settings.
uint64_t FingerprintOf(const WantedVersion& version);

// Of the names and bytes of the version's regular files, read now. Errors as OpenFile and ReadAt.
Result<ContentHash> HashContents(const WantedVersion& version);

// Whether a text may name a model: 1 to 128 characters, none of them control characters or slashes.
bool IsModelName(const std::string& name);

}  // namespace onnxd
