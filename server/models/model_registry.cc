#include "server/models/model_registry.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

void ModelRegistry::Publish(std::shared_ptr<const ModelVersion> version) {
  std::lock_guard lock(mutex_);
  auto models = std::make_shared<Models>(*models_);
  (*models)[version->model][version->version] = std::move(version);
  models_ = std::move(models);
}

std::shared_ptr<const ModelRegistry::Models> ModelRegistry::Snapshot() const {
  std::lock_guard lock(mutex_);
  return models_;
}

Result<std::shared_ptr<const ModelVersion>> ModelRegistry::Find(const std::string& model,
                                                                const std::string& version) const {
  const auto models = Snapshot();
  const auto found = models->find(model);
  if (found == models->end()) {
    return NotFound(StrCat("Request for unknown model: '", model.substr(0, 128), "' is not found"));
  }
  const Versions& versions = found->second;
  if (version.empty()) {
    // Versions are numbers without leading zeros: longer is newer, else text order decides.
    auto newest = versions.begin();
    for (auto it = versions.begin(); it != versions.end(); ++it) {
      if (std::pair(it->first.size(), it->first) > std::pair(newest->first.size(), newest->first)) {
        newest = it;
      }
    }
    return newest->second;
  }
  const auto exact = versions.find(version);
  if (exact == versions.end()) {
    return NotFound(StrCat("Request for unknown model: '", model, "' version '",
                           version.substr(0, 32), "' is not found"));
  }
  return exact->second;
}

}  // namespace onnxd
