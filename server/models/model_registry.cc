#include "server/models/model_registry.h"

#include "runtime/base/str_cat.h"
#include "server/models/version_routing.h"

namespace onnxd {
namespace {

using Version = std::shared_ptr<const ModelVersion>;

// Of those that `may` serve. Versions are numbers without leading zeros: longer is newer, else text
// order decides.
template <typename May>
Version Newest(const ModelRegistry::Versions& versions, May may) {
  auto newest = versions.end();
  for (auto it = versions.begin(); it != versions.end(); ++it) {
    if (!may(it->first)) continue;
    if (newest == versions.end() ||
        std::pair(it->first.size(), it->first) > std::pair(newest->first.size(), newest->first)) {
      newest = it;
    }
  }
  return newest == versions.end() ? nullptr : newest->second;
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
  for (const auto& [key, reason] : routing_->rolled_back) {
    entries[key] = {key.first, key.second, State::kUnavailable, StrCat("rolled back: ", reason)};
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
  const auto rolled_back = routing_->rolled_back.lower_bound({model, version});
  if (rolled_back != routing_->rolled_back.end() && rolled_back->first.first == model &&
      (version.empty() || rolled_back->first.second == version)) {
    return Unavailable(StrCat("model ", name, " was rolled back: ", rolled_back->second));
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

// For a request that names no version.
Version ModelRegistry::Choose(const std::string& model, const Versions& versions,
                              const Routing& routing, std::optional<uint64_t> point) {
  const auto may = [&](const std::string& version) {
    return !routing.rolled_back.contains({model, version});
  };
  const auto rollout = routing.rollouts.find(model);
  std::string shadow;  // answers only who names it, or what its share has
  if (rollout != routing.rollouts.end()) {
    shadow = rollout->second.Resolve(rollout->second.shadow.version);
    const auto share = versions.find(ShareAt(point, model, rollout->second, [&](const auto& v) {
      return versions.contains(v) && may(v);
    }));
    if (share != versions.end()) return share->second;
  }
  Version newest = Newest(versions, [&](const auto& v) { return v != shadow && may(v); });
  return newest != nullptr ? newest : Newest(versions, [](const auto&) { return true; });
}

Result<std::shared_ptr<const ModelVersion>> ModelRegistry::Find(
    const std::string& model, const std::string& version, std::optional<uint64_t> point) const {
  std::shared_ptr<const Models> models;
  std::shared_ptr<const Routing> routing;  // null: nothing was said of any model
  {
    std::lock_guard lock(mutex_);
    models = models_;
    if (!routing_->empty()) routing = routing_;
  }
  const std::string* wanted = &version;
  if (routing != nullptr) {
    const auto rollout = routing->rollouts.find(model);
    if (rollout != routing->rollouts.end()) wanted = &rollout->second.Resolve(version);
  }
  const auto found = models->find(model);
  if (found == models->end()) return Missing(model, *wanted);
  const Versions& versions = found->second;
  if (!wanted->empty()) {
    const auto exact = versions.find(*wanted);
    if (exact != versions.end()) return exact->second;
    return Missing(model, *wanted);
  }
  static const Routing kNothingSaid;
  return Choose(model, versions, routing == nullptr ? kNothingSaid : *routing, point);
}

void ModelRegistry::SetRollouts(const std::string& model, const Rollouts& rollouts) {
  std::lock_guard lock(mutex_);
  auto next = std::make_shared<Routing>(*routing_);
  if (model.empty()) {
    next->rollouts.clear();
  } else {
    next->rollouts.erase(model);
  }
  for (const auto& [name, wanted] : rollouts) {
    if (!model.empty() && name != model) continue;
    const auto before = routing_->rollouts.find(name);
    const auto versions = models_->find(name);
    next->rollouts[name] = MoveLabels(
        before == routing_->rollouts.end() ? RolloutSettings() : before->second, wanted,
        [&](const auto& v) { return versions != models_->end() && versions->second.contains(v); });
  }
  routing_ = std::move(next);
}

RolloutSettings ModelRegistry::Rollout(const std::string& model) const {
  std::lock_guard lock(mutex_);
  const auto found = routing_->rollouts.find(model);
  return found == routing_->rollouts.end() ? RolloutSettings() : found->second;
}

void ModelRegistry::RollBack(const std::string& model, const std::string& version,
                             const std::string& reason) {
  std::lock_guard lock(mutex_);
  auto next = std::make_shared<Routing>(*routing_);
  next->rolled_back[{model, version}] = reason;
  routing_ = std::move(next);
}

void ModelRegistry::Release(const std::string& model, const std::string& version) {
  std::lock_guard lock(mutex_);
  auto next = std::make_shared<Routing>(*routing_);
  next->rolled_back.erase({model, version});
  routing_ = std::move(next);
}

}  // namespace onnxd
