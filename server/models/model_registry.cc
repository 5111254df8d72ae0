#include "server/models/model_registry.h"

#include "runtime/base/str_cat.h"
#include "server/models/version_routing.h"

namespace onnxd {
namespace {

using Version = std::shared_ptr<const ModelVersion>;

// Versions are numbers without leading zeros: longer is newer, else text order decides.
const Version& Newest(const ModelRegistry::Versions& versions) {
  auto newest = versions.begin();
  for (auto it = versions.begin(); it != versions.end(); ++it) {
    if (std::pair(it->first.size(), it->first) > std::pair(newest->first.size(), newest->first)) {
      newest = it;
    }
  }
  return newest->second;
}

}  // namespace

void ModelRegistry::Expect(const std::string& model, const std::string& version) {
  std::lock_guard lock(mutex_);
  loading_.emplace(model, version);
}

void ModelRegistry::GiveUp(const std::string& model, const std::string& version,
                           const std::string& reason) {
  std::lock_guard lock(mutex_);
  loading_.erase({model, version});
  failed_[{model, version}] = reason;
}

const char* ModelRegistry::StateName(State state) {
  if (state == State::kReady) return "READY";
  return state == State::kLoading ? "LOADING" : "UNAVAILABLE";
}

std::vector<ModelRegistry::Entry> ModelRegistry::Index() const {
  std::map<Key, Entry> entries;
  std::lock_guard lock(mutex_);
  for (const auto& [key, reason] : failed_) {
    entries[key] = {key.first, key.second, State::kUnavailable, reason};
  }
  for (const Key& key : loading_) entries[key] = {key.first, key.second, State::kLoading, ""};
  for (const auto& [model, versions] : *models_) {
    for (const auto& [version, loaded] : versions) {
      // A version whose new files do not load serves on from the old ones.
      const auto failed = failed_.find({model, version});
      std::string reason = failed == failed_.end() ? "" : failed->second;
      if (loaded->evicted) reason = "it left the memory to others; the next request loads it again";
      entries[{model, version}] = {model, version, State::kReady, std::move(reason)};
    }
  }
  std::vector<Entry> list;
  for (auto& [key, entry] : entries) list.push_back(std::move(entry));
  return list;
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
  const auto failed = failed_.lower_bound({model, version});
  if (failed != failed_.end() && failed->first.first == model &&
      (version.empty() || failed->first.second == version)) {
    return Unavailable(StrCat("model ", name, " did not load: ", failed->second));
  }
  return NotFound(StrCat("Request for unknown model: ", name, " is not found"));
}

std::shared_ptr<const ModelVersion> ModelRegistry::Publish(
    std::shared_ptr<const ModelVersion> version) {
  std::lock_guard lock(mutex_);
  loading_.erase({version->model, version->version});
  failed_.erase({version->model, version->version});
  auto models = std::make_shared<Models>(*models_);
  auto& place = (*models)[version->model][version->version];
  std::swap(place, version);
  models_ = std::move(models);
  return version;
}

std::shared_ptr<const ModelVersion> ModelRegistry::Remove(const std::string& model,
                                                          const std::string& version) {
  std::lock_guard lock(mutex_);
  failed_.erase({model, version});
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

bool ModelRegistry::HasOther(const std::string& model, const std::string& version) const {
  const auto models = Snapshot();
  const auto found = models->find(model);
  return found != models->end() && found->second.size() > found->second.count(version);
}

std::shared_ptr<const ModelRegistry::Models> ModelRegistry::Snapshot() const {
  std::lock_guard lock(mutex_);
  return models_;
}

Result<std::shared_ptr<const ModelVersion>> ModelRegistry::Find(
    const std::string& model, const std::string& version, std::optional<uint64_t> point) const {
  std::shared_ptr<const Models> models;
  std::shared_ptr<const Rollouts> rollouts;  // null: no model has one
  {
    std::lock_guard lock(mutex_);
    models = models_;
    if (!rollouts_->empty()) rollouts = rollouts_;
  }
  const auto found = models->find(model);
  const auto rollout = rollouts == nullptr ? Rollouts::const_iterator() : rollouts->find(model);
  const bool has_rollout = rollouts != nullptr && rollout != rollouts->end();
  const std::string& wanted = has_rollout ? rollout->second.Resolve(version) : version;
  if (found == models->end()) return Missing(model, wanted);
  const Versions& versions = found->second;
  if (!wanted.empty()) {
    const auto exact = versions.find(wanted);
    if (exact != versions.end()) return exact->second;
    return Missing(model, wanted);
  }
  if (has_rollout) {
    const auto share = versions.find(ShareAt(point, model, rollout->second,
                                             [&](const auto& v) { return versions.contains(v); }));
    if (share != versions.end()) return share->second;
  }
  return Newest(versions);
}

void ModelRegistry::SetRollouts(const std::string& model, const Rollouts& rollouts) {
  std::lock_guard lock(mutex_);
  auto next = std::make_shared<Rollouts>();
  if (!model.empty()) {
    *next = *rollouts_;
    next->erase(model);
  }
  for (const auto& [name, wanted] : rollouts) {
    if (!model.empty() && name != model) continue;
    const auto before = rollouts_->find(name);
    const auto versions = models_->find(name);
    (*next)[name] = MoveLabels(
        before == rollouts_->end() ? RolloutSettings() : before->second, wanted,
        [&](const auto& v) { return versions != models_->end() && versions->second.contains(v); });
  }
  rollouts_ = std::move(next);
}

RolloutSettings ModelRegistry::Rollout(const std::string& model) const {
  std::lock_guard lock(mutex_);
  const auto found = rollouts_->find(model);
  return found == rollouts_->end() ? RolloutSettings() : found->second;
}

}  // namespace onnxd
