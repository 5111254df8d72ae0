// ModelRegistry: (name, version) -> ModelVersion. An immutable map replaced whole; the lock is held
// for one pointer copy.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/models/model_version.h"

namespace onnxd {

// Any thread.
class ModelRegistry {
 public:
  using Versions = std::map<std::string, std::shared_ptr<const ModelVersion>>;  // by version
  using Models = std::map<std::string, Versions>;

  void Publish(std::shared_ptr<const ModelVersion> version);

  // The version, or with an empty `version` the newest. kNotFound names what is missing.
  Result<std::shared_ptr<const ModelVersion>> Find(const std::string& model,
                                                   const std::string& version) const;
  std::shared_ptr<const Models> Snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Models> models_ = std::make_shared<Models>();  // guarded by mutex_
};

}  // namespace onnxd
