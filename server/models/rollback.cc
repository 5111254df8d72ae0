// What ModelManager does to take versions back, and to let them serve again.
#include <algorithm>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "server/models/model_manager.h"

namespace onnxd {
namespace {

bool SameSignature(const std::vector<TensorSignature>& a, const std::vector<TensorSignature>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.name == y.name && ToString(x.type) == ToString(y.type);
  });
}

// The versions of a split, the baseline first.
std::vector<std::string> VersionsOf(const RolloutSettings& rollout) {
  std::vector<std::string> versions;
  for (const auto& share : rollout.split) {
    const std::string& version = rollout.Resolve(share.version);
    if (share.weight == 0) continue;
    if (std::find(versions.begin(), versions.end(), version) == versions.end()) {
      versions.push_back(version);
    }
  }
  return versions;
}

CanaryAnalysis::Plan PlanOf(const RolloutSettings& rollout,
                            const ModelRegistry::Versions& serving) {
  CanaryAnalysis::Plan plan;
  plan.settings = rollout.rollback;
  for (const std::string& version : VersionsOf(rollout)) {
    const auto found = serving.find(version);
    if (found == serving.end()) continue;
    if (plan.baseline.empty()) {
      plan.baseline = version;
      continue;
    }
    plan.canaries.insert(version);
    const ModelVersion &canary = *found->second, &baseline = *serving.at(plan.baseline);
    if (!SameSignature(canary.inputs, baseline.inputs) ||
        !SameSignature(canary.outputs, baseline.outputs)) {
      plan.differing.insert(version);
    }
  }
  return plan;
}

}  // namespace

std::shared_ptr<ModelRollout> ModelManager::RolloutOf(const std::string& model) {
  auto& rollout = rollouts_[model];
  if (rollout == nullptr) {
    rollout = std::make_shared<ModelRollout>([this, model](const CanaryAnalysis::Verdict& bad) {
      // At once, by the thread of the answer that decided; the rest when there is time.
      registry_.RollBack(model, bad.version, bad.reason);
      Obey([this, model, bad] {
        const Status done = RollBack({model, bad.version}, bad.cause, bad.reason);
        if (!done.ok()) LogError(StrCat("model '", model, "': ", done.message()));
      });
      watch_.Wake();
    });
  }
  return rollout;
}

void ModelManager::UpdateRollouts() {
  const auto models = registry_.Snapshot();
  static const ModelRegistry::Versions kNone;
  for (const auto& [model, shared] : rollouts_) {
    const RolloutSettings rollout = registry_.Rollout(model);
    const auto served = models->find(model);
    const ModelRegistry::Versions& versions = served == models->end() ? kNone : served->second;
    ShadowSettings shadow = rollout.shadow;
    shadow.version = rollout.Resolve(shadow.version);
    if (!versions.contains(shadow.version)) shadow.version.clear();
    shared->shadow.Follow(shadow);
    CanaryAnalysis::Plan plan = PlanOf(rollout, versions);
    plan.shadow = shadow.version;
    shared->analysis.Follow(std::move(plan));
  }
}

void ModelManager::RollBack(const std::string& model, const std::string& version, Done done) {
  const bool waits = TryObey([this, model, version, done] {
    done(stopping_ ? Unavailable("the server is stopping") : RollBack(model, version));
  });
  if (!waits) done(Unavailable("too many changes wait, or the server is stopping"));
}

void ModelManager::Release(const std::string& model, const std::string& version, Done done) {
  const bool waits = TryObey([this, model, version, done] {
    done(stopping_ ? Unavailable("the server is stopping") : Release(model, version));
  });
  if (!waits) done(Unavailable("too many changes wait, or the server is stopping"));
}

std::vector<QuarantineEntry> ModelManager::RolledBack(const std::string& model) const {
  std::lock_guard lock(mutex_);
  std::vector<QuarantineEntry> of;
  std::copy_if(rolled_back_.begin(), rolled_back_.end(), std::back_inserter(of),
               [&](const QuarantineEntry& entry) { return entry.model == model; });
  return of;
}

Result<VersionKey> ModelManager::NewestOrCanary(const std::string& model) const {
  const std::vector<std::string> split = VersionsOf(registry_.Rollout(model));
  if (split.size() > 2) {
    return FailedPrecondition(StrCat("several versions of model '", model,
                                     "' have a share of its requests; name one of ",
                                     StrJoin(split, ", ")));
  }
  if (split.size() == 2) return VersionKey(model, split[1]);
  ONNXD_ASSIGN_OR_RETURN(const auto newest, registry_.Find(model, ""));
  return VersionKey(model, newest->version);
}

Status ModelManager::RollBack(const std::string& model, const std::string& version) {
  VersionKey key(model, registry_.Rollout(model).Resolve(version));
  if (version.empty()) {
    ONNXD_ASSIGN_OR_RETURN(key, NewestOrCanary(model));
  }
  if (!sources_.contains(key) || !registry_.Has(model, key.second)) {
    return NotFound(StrCat("no version '", key.second, "' of a model '", model, "' serves"));
  }
  return RollBack(key, RollbackCause::kRequest, "by request");
}

Status ModelManager::RollBack(const VersionKey& key, RollbackCause cause,
                              const std::string& reason) {
  const auto& [model, version] = key;
  const auto source = sources_.find(key);
  if (source == sources_.end()) return Status::Ok();  // it went meanwhile
  const Quarantine before = quarantine_;
  const auto contents = HashContents(source->second);
  if (!contents.ok() || FingerprintOf(source->second) != source->second.fingerprint) {
    registry_.Release(model, version);
    return Unavailable(StrCat("the files of version ", version, " change: it is replaced"));
  }
  quarantine_.Add({model, version, contents->Hex(), reason});
  NoteRolledBack();  // whoever sees that it is gone finds why
  registry_.RollBack(model, version, reason);
  const Status kept = KeepQuarantine();
  const Status replaced = Replace(key);
  if (!replaced.ok()) {
    quarantine_ = before;
    registry_.Release(model, version);
    NoteRolledBack();
    (void)KeepQuarantine();
    return replaced;
  }
  metrics_.CountRollback(model, RollbackCauseName(cause));
  LogWarning(StrCat("model '", model, "' version ", version, " was rolled back: ", reason,
                    "; it stays away until it is released"));
  return kept;
}

// Has others serve, and it no more.
Status ModelManager::Replace(const VersionKey& key) {
  const auto& [model, version] = key;
  ONNXD_ASSIGN_OR_RETURN(const auto wanted, Scan(model));
  const bool others = std::any_of(wanted.begin(), wanted.end(),
                                  [&](const auto& other) { return other.version != key.second; });
  if (!others) {
    return FailedPrecondition(StrCat("model '", model, "' has no version beside ", version));
  }
  const Status approached = Approach(wanted, model);
  if (!registry_.HasOther(model, version)) return approached;
  if (known_.contains(key)) {  // one that did not load does not keep it
    resident_.Unload(key, false);
    Forget(key);
    UpdateRollouts();
  }
  RememberLoaded();
  return Status::Ok();
}

Status ModelManager::Release(const std::string& model, const std::string& version) {
  const Quarantine before = quarantine_;
  if (!quarantine_.Release(model, version)) {
    return NotFound(StrCat("no version '", version, "' of a model '", model, "' was rolled back"));
  }
  const Status kept = KeepQuarantine();
  if (!kept.ok()) {
    quarantine_ = before;
    return kept;
  }
  NoteRolledBack();
  registry_.Release(model, version);
  if (KnownOf(model).empty()) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const auto wanted, Scan(model));
  const Status approached = Approach(wanted, model);
  RememberLoaded();
  return approached;
}

// As far as there is a folder for it.
Status ModelManager::KeepQuarantine() {
  if (!keeps_rollouts_) return Status::Ok();
  return WriteQuarantine(options_.models.state_dir, quarantine_)
      .WithContext("a restart will not know what was rolled back");
}

void ModelManager::NoteRolledBack() {
  std::lock_guard lock(mutex_);
  rolled_back_ = quarantine_.entries();
}

}  // namespace onnxd
