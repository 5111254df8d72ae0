#include "server/models/model_registry.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

void ModelRegistry::Expect(const std::string& model, const std::string& version) {
  std::lock_guard lock(mutex_);
  loading_.emplace(model, version);
}

void ModelRegistry::GiveUp(const std::string& model, const std::string& version) {
  std::lock_guard lock(mutex_);
  loading_.erase({model, version});
}

Status ModelRegistry::Missing(const std::string& model, const std::string& version) const {
  std::string name = StrCat("'", model.substr(0, 128), "'");
  if (!version.empty()) name += StrCat(" version '", version.substr(0, 32), "'");
  std::lock_guard lock(mutex_);
  const auto first = loading_.lower_bound({model, version});
  if (first != loading_.end() && first->first == model &&
      (version.empty() || first->second == version)) {
    return Unavailable(StrCat("model ", name, " is still loading"));
  }
  return NotFound(StrCat("Request for unknown model: ", name, " is not found"));
}

std::shared_ptr<const ModelVersion> ModelRegistry::Publish(
    std::shared_ptr<const ModelVersion> version) {
  std::lock_guard lock(mutex_);
  loading_.erase({version->model, version->version});
  auto models = std::make_shared<Models>(*models_);
  auto& place = (*models)[version->model][version->version];
  std::swap(place, version);
  models_ = std::move(models);
  return version;
}

std::shared_ptr<const ModelVersion> ModelRegistry::Remove(const std::string& model,
                                                          const std::string& version) {
  std::lock_guard lock(mutex_);
  auto models = std::make_shared<Models>(*models_);
  const auto found = models->find(model);
  if (found == models->end()) return nullptr;
  const auto place = found->second.find(version);
  if (place == found->second.end()) return nullptr;
  auto removed = std::move(place->second);
  found->second.erase(place);
  if (found->second.empty()) models->erase(found);
  models_ = std::move(models);
  return removed;
}

bool ModelRegistry::Has(const std::string& model, const std::string& version) const {
  const auto models = Snapshot();
  const auto found = models->find(model);
  return found != models->end() && found->second.contains(version);
}

std::shared_ptr<const ModelRegistry::Models> ModelRegistry::Snapshot() const {
  std::lock_guard lock(mutex_);
  return models_;
}

Result<std::shared_ptr<const ModelVersion>> ModelRegistry::Find(const std::string& model,
                                                                const std::string& version) const {
  const auto models = Snapshot();
  const auto found = models->find(model);
  if (found == models->end()) return Missing(model, version);
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
  if (exact == versions.end()) return Missing(model, version);
  return exact->second;
}

}  // namespace onnxd
