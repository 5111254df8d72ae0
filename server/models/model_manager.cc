#include "server/models/model_manager.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/session/prepared_model_cache.h"
#include "server/config/triton_config.h"
#include "server/models/ensemble.h"
#include "server/models/loaded_list.h"

namespace onnxd {
namespace {

// How long files must stay as they are before they count as whole.
constexpr auto kMoment = std::chrono::milliseconds(200);
constexpr int64_t kFreshSeconds = 2;
constexpr size_t kMostCommands = 64;
constexpr size_t kMostWaiters = 1024;
constexpr size_t kMostIgnored = 1000;
constexpr auto kUnloadFirst = std::chrono::seconds(10);
constexpr int64_t kLeastEstimate = 1 << 20;
constexpr int kMostAttempts = 3;

// Whether somebody may still be writing.
bool IsFresh(const WantedVersion& version) {
  const int64_t age = std::time(nullptr) - version.changed;
  return age >= 0 && age < kFreshSeconds;
}

VersionKey KeyOf(const WantedVersion& version) { return {version.model, version.version}; }

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// What a change names must be there; what its file names may come.
Status CheckChange(const std::string& model, const RolloutChange& change,
                   const std::vector<WantedVersion>& wanted) {
  if (wanted.empty()) return NotFound(StrCat("the repository has no model '", model, "'"));
  ONNXD_RETURN_IF_ERROR(wanted[0].fault);
  const RolloutSettings& rollout = wanted[0].settings.rollout;
  ONNXD_RETURN_IF_ERROR(CheckRollout(rollout));
  std::vector<std::string> named;
  for (const auto& [label, version] : change.labels) {
    if (!version.empty()) named.push_back(version);
  }
  if (change.split) {
    for (const auto& share : *change.split) named.push_back(rollout.Resolve(share.version));
  }
  for (const std::string& version : named) {
    const bool there = std::any_of(wanted.begin(), wanted.end(),
                                   [&](const auto& other) { return other.version == version; });
    if (!there) return NotFound(StrCat("model '", model, "' has no version ", version));
  }
  return Status::Ok();
}

// Why the one who asked for an evicted version does not wait any more.
Status LossOf(const ModelManager::Patience& patience) {
  if (patience.cancelled != nullptr && patience.cancelled->load(std::memory_order_relaxed)) {
    return Cancelled("the client is gone");
  }
  if (patience.deadline && *patience.deadline < std::chrono::steady_clock::now()) {
    return DeadlineExceeded("the deadline expired while the model was loaded again");
  }
  return Status::Ok();
}

}  // namespace

ModelManager::ModelManager(const SessionOptions& session, const ServerOptions& options,
                           ModelRegistry& registry, Scheduler& scheduler, ServerMetrics& metrics,
                           std::shared_ptr<MemoryAccount> memory, ModelLoader::LoadSession load,
                           ModelLoader::FindProviders find_providers)
    : options_(options),
      control_mode_(options.models.control_mode),
      keeps_rollouts_(!options.models.state_dir.empty()),
      registry_(registry),
      metrics_(metrics),
      loader_(session, scheduler, metrics, std::move(load), std::move(find_providers)),
      resident_(registry, scheduler, metrics, std::move(memory)),
      needs_all_(options.models.readiness == "all"),
      watch_(RepositoryOptionsOf(options).paths) {
  resident_.SetLeastResident(std::chrono::seconds(options.models.min_resident_s));
  auto overlays = ReadRollouts(options.models.state_dir);
  if (overlays.ok()) overlays_ = *std::move(overlays);
  auto quarantine = ReadQuarantine(options.models.state_dir);
  if (quarantine.ok()) quarantine_ = *std::move(quarantine);
  rolled_back_ = quarantine_.entries();
  for (const auto& entry : rolled_back_) {
    registry_.RollBack(entry.model, entry.version, entry.reason);
  }
}

ModelManager::~ModelManager() { Stop(); }

void ModelManager::Expect(const std::vector<WantedVersion>& wanted) {
  FollowRollouts(wanted, "");
  for (const WantedVersion& version : wanted) {
    registry_.Expect(version.model, version.version);
    if (version.settings.required) required_.insert(version.model);
  }
  required_missing_ = !required_.empty();
}

std::vector<Status> ModelManager::LoadAll(const std::vector<WantedVersion>& wanted) {
  std::vector<Status> failures;
  for (const WantedVersion& version : wanted) {
    if (stopping_) return failures;
    const Status status = LoadOrGiveUp(version, WorkPriority::kNormal);
    if (!status.ok()) failures.push_back(status);
  }
  FollowRollouts(wanted, "");
  UpdateRollouts();
  first_failures_ = failures.size();
  NoteRequired();
  done_.store(true, std::memory_order_release);
  return failures;
}

ModelLoader::Way ModelManager::WayOf(WorkPriority priority) {
  ModelLoader::Way way;
  way.priority = priority;
  way.timeout = std::chrono::seconds(options_.models.load_timeout_s);
  way.trusts_files = priority == WorkPriority::kNormal;
  way.stopping = &stopping_;
  way.meanwhile = [this] { RefuseLostWaiters(); };
  return way;
}

int64_t ModelManager::EstimateOf(const WantedVersion& wanted) const {
  const auto known = needs_.find(KeyOf(wanted));
  if (known != needs_.end() && known->second.first == wanted.fingerprint) {
    return known->second.second;
  }
  // Weights as the file has them, and packed.
  return 2 * std::min<int64_t>(wanted.bytes, int64_t{1} << 50) + kLeastEstimate;
}

Result<std::shared_ptr<ModelVersion>> ModelManager::LoadVersion(const WantedVersion& wanted,
                                                                WorkPriority priority) {
  if (wanted.settings.ensemble.active()) return LoadEnsemble(wanted);
  for (int attempt = 1;; ++attempt) {
    auto memory = std::make_shared<MemoryAccount>(resident_.memory());
    ONNXD_RETURN_IF_ERROR(resident_.Reserve(*memory, EstimateOf(wanted), wanted.model));
    auto loaded = loader_.Load(wanted, memory, WayOf(priority));
    auto& need = needs_[KeyOf(wanted)];
    if (loaded.ok()) {
      need = {wanted.fingerprint, memory->bytes()};
      (void)memory->Reserve(0);
      (*loaded)->rollout = RolloutOf(wanted.model);
      return loaded;
    }
    const int64_t wished = memory->most_refused();
    if (loaded.status().code() != StatusCode::kResourceExhausted || wished == 0) return loaded;
    // It takes more than it seemed to.
    need = {wanted.fingerprint, wished + wished / 4};
    if (attempt == kMostAttempts || stopping_) return loaded;
  }
}

Result<std::shared_ptr<ModelVersion>> ModelManager::LoadEnsemble(const WantedVersion& wanted) {
  ONNXD_RETURN_IF_ERROR(wanted.fault);
  ONNXD_ASSIGN_OR_RETURN(auto version,
                         MakeEnsemble(wanted.model, wanted.version, wanted.settings, registry_));
  version->memory = std::make_shared<MemoryAccount>(resident_.memory());
  version->metrics =
      metrics_.ForModel(wanted.model, wanted.version, wanted.settings.duration_buckets_us);
  version->scheduled = std::make_shared<ScheduledModel>(
      wanted.model, BatchComputation{[](auto, const auto&) -> Result<std::vector<Value>> {
        return Internal("an ensemble runs by its models");
      }},
      version->metrics);
  version->loaded = std::chrono::steady_clock::now();
  version->last_used = version->loaded;
  version->rollout = RolloutOf(wanted.model);
  LogInfo(StrCat("model '", wanted.model, "' version ", wanted.version, " is an ensemble of ",
                 version->ensemble->steps.size(), " steps"));
  return version;
}

// Of ensembles that need the model, which is about to go.
void ModelManager::WithdrawEnsembles(const std::string& model) {
  for (;;) {
    const std::string ensemble = EnsembleThatNeeds(model, registry_);
    if (ensemble.empty()) return;
    WithdrawEnsembles(ensemble);
    const auto models = registry_.Snapshot();
    for (const auto& [version, serving] : models->at(ensemble)) {
      const VersionKey key(ensemble, version);
      resident_.Unload(key, false);
      Forget(key);
      registry_.GiveUp(key.first, key.second, StrCat("model '", model, "' is not there any more"));
      LogWarning(StrCat("model '", key.first, "' version ", key.second,
                        " does not serve any more: its model '", model, "' goes"));
    }
  }
}

Status ModelManager::LoadOrGiveUp(const WantedVersion& wanted, WorkPriority priority) {
  const VersionKey key = KeyOf(wanted);
  if (wanted.settings.required) required_.insert(wanted.model);
  if (resident_.PublishKept(key, wanted.fingerprint)) {
    known_[key] = {wanted.fingerprint, true};
    sources_[key] = wanted;
    return Status::Ok();
  }
  auto loaded = LoadVersion(wanted, priority);
  const bool changed = loaded.status().code() == StatusCode::kAborted ||
                       (wanted.fault.ok() && FingerprintOf(wanted) != wanted.fingerprint);
  if (changed)
    return Unavailable(StrCat(wanted.path, " changed while it was loaded"));  // next time
  if (!loaded.ok()) return GiveUp(wanted, loaded.status());
  known_[key] = {wanted.fingerprint, true};
  sources_[key] = wanted;
  short_of_memory_.erase(key);
  if (priority == WorkPriority::kLow && (*loaded)->session != nullptr) {
    loader_.TryBatches(*loaded, WayOf(priority));
  }
  RolloutOf(wanted.model)->analysis.Forget(wanted.version);
  registry_.Release(wanted.model, wanted.version);
  resident_.Publish(*std::move(loaded), wanted.fingerprint);
  metrics_.CountModelLoad(wanted.model, true);
  return Status::Ok();
}

Status ModelManager::GiveUp(const WantedVersion& wanted, const Status& reason) {
  const VersionKey key = KeyOf(wanted);
  const bool serving = registry_.Has(wanted.model, wanted.version);
  const Status failure = reason.WithContext(
      StrCat("model '", wanted.model, "' version ", wanted.version, " (", wanted.path, ")"));
  // What lacks only memory, or a model of an ensemble, is tried again as soon as that may be there,
  // and complained of once.
  const bool short_of_memory =
      reason.code() == StatusCode::kResourceExhausted ||
      (wanted.settings.ensemble.active() && reason.code() == StatusCode::kFailedPrecondition);
  if (!short_of_memory) known_[key] = {wanted.fingerprint, serving};
  if (!short_of_memory || short_of_memory_.insert(key).second) {
    LogError(failure.ToString());
    metrics_.CountModelLoad(wanted.model, false);
  }
  registry_.GiveUp(wanted.model, wanted.version, std::string(reason.message()));
  return failure;
}

void ModelManager::Follow() {
  thread_ = std::thread([this] { Work(); });
}

void ModelManager::Stop() {
  stopping_ = true;
  watch_.Wake();
  if (thread_.joinable()) thread_.join();
  ObeyCommands();
  ReviveWaiting();
}

void ModelManager::Work() {
  for (const auto& [key, known] : known_) {
    const auto found = registry_.Find(key.first, key.second);
    if (found.ok() && (*found)->session != nullptr)
      loader_.TryBatches(*found, WayOf(WorkPriority::kLow));
  }
  while (!stopping_) {
    const Status status = CatchExceptions([this] {
      Look();
      return Status::Ok();
    });
    if (!status.ok()) LogWarning(StrCat("a look at the repository failed: ", status.ToString()));
  }
}

void ModelManager::Look() {
  const bool follows = control_mode_ == "poll";
  if (follows) watch_.Refresh();
  const bool busy = resident_.has_retired() || !settled_;
  const auto interval = std::chrono::seconds(options_.models.poll_interval_s);
  watch_.Wait(busy ? kMoment : std::chrono::milliseconds(interval));
  ReviveWaiting();
  ObeyCommands();
  if (follows && !stopping_) {
    FollowOnce(false);
    // Events that follow each other closely are one change.
    if (!settled_) std::this_thread::sleep_for(kMoment);
  }
  if (resident_.memory()->refusals() != refusals_seen_) {
    resident_.Relieve();
    refusals_seen_ = resident_.memory()->refusals();
  }
  if (const PreparedModelCache* cache = loader_.cache()) {
    const auto statistics = cache->statistics();
    metrics_.SetCache(statistics.damaged, statistics.stored, statistics.not_stored);
  }
  NoteRequired();
  resident_.DropRetired();
}

void ModelManager::FollowOnce(bool known_only) {
  auto wanted = ScanRepository(Repository());
  if (!wanted.ok()) {
    // What serves stays: a repository that cannot be read says nothing about its models.
    if (!scan_failed_) LogWarning(wanted.status().ToString());
    scan_failed_ = true;
    settled_ = true;
    return;
  }
  scan_failed_ = false;
  if (known_only) return LoadKnownAnew(*wanted);
  const std::vector<WantedVersion> to_load = Reconcile(*wanted, known_).load;
  settled_ = AreStable(*wanted) && std::none_of(to_load.begin(), to_load.end(), IsFresh);
  if (settled_) (void)Approach(*wanted, "");  // failures are logged
}

// Where requests or the first scan decide what serves: nothing comes or goes.
void ModelManager::LoadKnownAnew(const std::vector<WantedVersion>& wanted) {
  for (const WantedVersion& version : Reconcile(wanted, known_).load) {
    if (!stopping_ && known_.contains(KeyOf(version))) {
      (void)LoadOrGiveUp(version, WorkPriority::kLow);  // failures are logged
    }
  }
  FollowRollouts(wanted, "");
  UpdateRollouts();
}

// Labels and shares of this model, or of all if it is empty. Where a model's file is faulty, what
// holds stays.
void ModelManager::FollowRollouts(const std::vector<WantedVersion>& wanted,
                                  const std::string& model) {
  ModelRegistry::Rollouts rollouts;
  for (const WantedVersion& version : wanted) {
    RolloutSettings rollout =
        version.fault.ok() ? version.settings.rollout : registry_.Rollout(version.model);
    if (rollout != RolloutSettings()) rollouts[version.model] = std::move(rollout);
  }
  registry_.SetRollouts(model, rollouts);
}

void ModelManager::Control(Command command, Done done) {
  if (control_mode_ != "explicit") {
    return done(FailedPrecondition(
        StrCat("models.control_mode is ", control_mode_, ": models are not loaded by request")));
  }
  if (!IsModelName(command.model)) return done(InvalidArgument("this cannot name a model"));
  const bool waits = TryObey([this, command = std::move(command), done] {
    done(stopping_ ? Unavailable("the server is stopping") : Obey(command));
  });
  if (!waits) done(Unavailable("too many loads wait, or the server is stopping"));
}

Status ModelManager::Obey(const Command& command) {
  const std::string& model = command.model;
  if (!command.load) return Unload(model, command.unload_dependents);
  if (command.config) {
    ModelSettings settings = DefaultSettings(options_);
    ONNXD_RETURN_IF_ERROR(ApplyTritonConfigJson(*command.config, model, settings));
    ONNXD_RETURN_IF_ERROR(ParseVersionPolicy(settings.versions).status());
  }
  const auto before = configs_;
  if (command.config) {
    configs_[model] = *command.config;
  } else {
    configs_.erase(model);
  }
  const Status status = Load(model);
  if (!status.ok()) configs_ = before;  // what serves goes on as it did
  return status;
}

void ModelManager::ChangeRollout(const std::string& model, RolloutChange change,
                                 RolloutChanged done) {
  const bool waits = TryObey([this, model, change = std::move(change), done] {
    done(stopping_ ? Unavailable("the server is stopping") : ChangeRollout(model, change));
  });
  if (!waits) done(Unavailable("too many changes wait, or the server is stopping"));
}

Status ModelManager::ChangeRollout(const std::string& model, const RolloutChange& change) {
  if (KnownOf(model).empty()) return NotFound(StrCat("model '", model, "' is not loaded"));
  RepositoryOptions repository = Repository();
  RolloutOverlay& overlay = repository.rollouts[model];
  overlay = Changed(std::move(overlay), change);
  if (overlay == RolloutOverlay()) repository.rollouts.erase(model);
  ONNXD_ASSIGN_OR_RETURN(auto wanted, ScanRepository(repository));
  std::erase_if(wanted, [&](const WantedVersion& version) { return version.model != model; });
  ONNXD_RETURN_IF_ERROR(CheckChange(model, change, wanted));
  if (keeps_rollouts_) {
    ONNXD_RETURN_IF_ERROR(WriteRollouts(options_.models.state_dir, repository.rollouts));
  }
  {
    std::lock_guard lock(mutex_);
    overlays_ = std::move(repository.rollouts);
  }
  return Approach(wanted, model);
}

RolloutOverlay ModelManager::OverlayOf(const std::string& model) const {
  std::lock_guard lock(mutex_);
  const auto found = overlays_.find(model);
  return found == overlays_.end() ? RolloutOverlay() : found->second;
}

// As it is to be looked at now.
RepositoryOptions ModelManager::Repository() {
  RepositoryOptions repository = RepositoryOptionsOf(options_);
  repository.is_withheld = [this](const WantedVersion& version) {
    const auto reason = quarantine_.Holds(version);
    if (reason) registry_.RollBack(version.model, version.version, *reason);
    return reason.has_value();
  };
  repository.configs = configs_;
  repository.note_ignored = [this](const std::string& path) {
    if (ignored_.size() >= kMostIgnored || !ignored_.insert(path).second) return;
    LogWarning(StrCat(path,
                      " is no version: its name is not a whole number from 1 without leading "
                      "zeros"));
  };
  std::lock_guard lock(mutex_);
  repository.rollouts = overlays_;
  return repository;
}

void ModelManager::Reconfigure(const ServerOptions& options) {
  needs_all_ = options.models.readiness == "all";
  {
    std::lock_guard lock(mutex_);
    commands_.push_back([this, options] {
      options_ = options;
      options_.models.control_mode = control_mode_;
      resident_.SetLeastResident(std::chrono::seconds(options_.models.min_resident_s));
      if (control_mode_ != "poll" && !stopping_) FollowOnce(true);
    });
  }
  watch_.Wake();
}

void ModelManager::ObeyCommands() {
  std::vector<std::function<void()>> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (const auto& command : commands) command();
}

Result<std::vector<WantedVersion>> ModelManager::Scan(const std::string& model) {
  ONNXD_ASSIGN_OR_RETURN(auto wanted, ScanRepository(Repository()));
  std::erase_if(wanted, [&](const WantedVersion& version) { return version.model != model; });
  return wanted;
}

Status ModelManager::Load(const std::string& model) {
  ONNXD_ASSIGN_OR_RETURN(const auto wanted, Scan(model));
  if (wanted.empty()) return NotFound(StrCat("the repository has no model '", model, "'"));
  ONNXD_RETURN_IF_ERROR(LoadNeeded(wanted));
  for (const VersionKey& key : resident_.Evicted(model)) ONNXD_RETURN_IF_ERROR(Revive(key));
  const Status status = Approach(wanted, model);
  RememberLoaded();
  return status;
}

// The models of ensembles that do not serve yet, one that is named again and again once.
Status ModelManager::LoadNeeded(const std::vector<WantedVersion>& ensembles) {
  for (const WantedVersion& version : ensembles) {
    for (const EnsembleStep& step : version.settings.ensemble.steps) {
      if (registry_.HasOther(step.model, "") || !needed_.insert(step.model).second) continue;
      const Status loaded = Load(step.model);
      needed_.erase(step.model);
      if (!loaded.ok()) return loaded.WithContext(StrCat("model '", step.model, "'"));
    }
  }
  return Status::Ok();
}

Status ModelManager::Unload(const std::string& model, bool with_members) {
  if (KnownOf(model).empty()) return NotFound(StrCat("model '", model, "' is not loaded"));
  if (const std::string ensemble = EnsembleThatNeeds(model, registry_); !ensemble.empty()) {
    return FailedPrecondition(
        StrCat("model '", model, "' is part of the ensemble '", ensemble, "': unload that first"));
  }
  std::set<std::string> members;
  if (with_members) {
    for (const auto& [key, version] : KnownOf(model)) {
      for (const EnsembleStep& step : sources_[key].settings.ensemble.steps) {
        members.insert(step.model);
      }
    }
  }
  Status status = Approach({}, model);
  configs_.erase(model);
  for (const std::string& member : members) {
    if (KnownOf(member).empty() || !EnsembleThatNeeds(member, registry_).empty()) continue;
    const Status unloaded = Unload(member, true);
    if (!unloaded.ok()) status = unloaded;
  }
  RememberLoaded();
  return status;
}

void ModelManager::RememberLoaded() {
  NoteRequired();
  if (options_.models.state_dir.empty()) return;
  std::set<std::string> loaded;
  for (const auto& [key, version] : known_) {
    if (version.serving) loaded.insert(key.first);
  }
  const Status written = WriteLoadedList(options_.models.state_dir, loaded);
  if (!written.ok()) LogWarning(written.ToString());
}

std::map<VersionKey, KnownVersion> ModelManager::KnownOf(const std::string& model) const {
  auto known = known_;
  if (model.empty()) return known;
  std::erase_if(known, [&](const auto& version) { return version.first.first != model; });
  return known;
}

Status ModelManager::Approach(const std::vector<WantedVersion>& wanted, const std::string& model) {
  Status failure;
  for (const WantedVersion& version : Reconcile(wanted, KnownOf(model)).load) {
    if (stopping_) return Unavailable("the server is stopping");
    std::vector<WantedVersion> before;
    if (version.settings.update_policy == "unload_first") before = UnloadFirst(version, wanted);
    const Status loaded = LoadOrGiveUp(version, WorkPriority::kLow);
    if (loaded.ok()) continue;
    failure = loaded;
    if (!before.empty()) ReturnTo(before, version);
  }
  FollowRollouts(wanted, model);
  for (const VersionKey& key : Reconcile(wanted, KnownOf(model)).unload) {
    // A newer one took its place: its like may be wanted again.
    const bool superseded = Exists(sources_[key].path) && registry_.HasOther(key.first, key.second);
    if (!registry_.HasOther(key.first, key.second)) WithdrawEnsembles(key.first);
    resident_.Unload(key, superseded && control_mode_ == "poll");
    Forget(key);
  }
  UpdateRollouts();
  return failure;
}

// What serves of the model and will not once `version` does goes now. Returns it.
std::vector<WantedVersion> ModelManager::UnloadFirst(const WantedVersion& version,
                                                     const std::vector<WantedVersion>& wanted) {
  std::vector<VersionKey> keys;
  std::vector<WantedVersion> gone;
  for (const auto& [known_key, known] : KnownOf(version.model)) {
    const VersionKey& key = known_key;
    const bool stays = std::any_of(wanted.begin(), wanted.end(), [&](const WantedVersion& other) {
      return KeyOf(other) == key && key != KeyOf(version);
    });
    if (stays) continue;
    keys.push_back(key);
    if (known.serving) gone.push_back(sources_[key]);
  }
  registry_.Expect(version.model, version.version);
  resident_.UnloadAndWait(keys, kUnloadFirst);
  for (const VersionKey& key : keys) Forget(key);
  return gone;
}

// Loads again what was unloaded for a version that then failed, which is not tried again before its
// files change.
void ModelManager::ReturnTo(const std::vector<WantedVersion>& before, const WantedVersion& failed) {
  known_[KeyOf(failed)] = {failed.fingerprint, false};
  for (const WantedVersion& version : before) {
    if (stopping_ || KeyOf(version) == KeyOf(failed) || !Exists(version.path)) continue;
    (void)LoadOrGiveUp(version, WorkPriority::kNormal);  // failures are logged
  }
}

void ModelManager::Forget(const VersionKey& key) {
  RolloutOf(key.first)->analysis.Forget(key.second);
  known_.erase(key);
  sources_.erase(key);
  needs_.erase(key);
  short_of_memory_.erase(key);
}

bool ModelManager::AreStable(const std::vector<WantedVersion>& wanted) {
  decltype(last_scan_) scan;
  for (const WantedVersion& version : wanted) {
    scan[KeyOf(version)] = {version.fingerprint, version.settings.rollout};
  }
  const bool stable = scan == last_scan_;
  last_scan_ = std::move(scan);
  return stable;
}

void ModelManager::NoteRequired() {
  required_missing_ =
      std::any_of(required_.begin(), required_.end(),
                  [&](const std::string& model) { return !registry_.HasOther(model, ""); });
}

void ModelManager::Revive(const ModelVersion& version, Patience patience, Revived done) {
  {
    std::lock_guard lock(mutex_);
    if (!stopping_ && waiters_.size() < kMostWaiters) {
      waiters_.push_back(
          {{version.model, version.version}, std::move(patience), std::exchange(done, nullptr)});
    }
  }
  if (done) return done(Unavailable("too many requests wait for models to load"));
  watch_.Wake();
}

void ModelManager::ReviveWaiting() {
  std::set<VersionKey> keys;
  {
    std::lock_guard lock(mutex_);
    for (const Waiter& waiter : waiters_) keys.insert(waiter.key);
  }
  RefuseLostWaiters();
  for (const VersionKey& key : keys) {
    const Status revived = stopping_ || !resident_.IsEvicted(key) ? Status::Ok() : Revive(key);
    std::vector<Waiter> served;
    {
      std::lock_guard lock(mutex_);
      const auto begin = std::stable_partition(waiters_.begin(), waiters_.end(),
                                               [&](const Waiter& w) { return w.key != key; });
      std::move(begin, waiters_.end(), std::back_inserter(served));
      waiters_.erase(begin, waiters_.end());
    }
    for (const Waiter& waiter : served) {
      auto found = registry_.Find(key.first, key.second);
      if (stopping_) found = Unavailable("the server is stopping");
      if (found.ok() && (*found)->evicted) {
        found =
            Unavailable(StrCat("model '", key.first, "' is not in memory: ", revived.message()));
      }
      waiter.done(std::move(found));
    }
  }
}

// Somebody waits: not at low priority, and the trial can come later.
Status ModelManager::Revive(const VersionKey& key) {
  const auto source = sources_.find(key);
  if (source == sources_.end()) return NotFound("it is not wanted any more");
  const WantedVersion wanted = source->second;
  auto loaded = LoadVersion(wanted, WorkPriority::kNormal);
  if (!loaded.ok()) {
    LogError(loaded.status().WithContext(StrCat("model '", key.first, "'")).ToString());
    metrics_.CountModelLoad(key.first, false);
    return loaded.status();
  }
  const std::shared_ptr<const ModelVersion> version = *std::move(loaded);
  resident_.Publish(version, wanted.fingerprint);
  metrics_.CountModelLoad(key.first, true);
  Obey([this, version] { loader_.TryBatches(version, WayOf(WorkPriority::kLow)); });
  return Status::Ok();
}

void ModelManager::Obey(std::function<void()> command) {
  std::lock_guard lock(mutex_);
  commands_.push_back(std::move(command));
}

// False: too many wait, or the manager ends.
bool ModelManager::TryObey(std::function<void()> command) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || commands_.size() >= kMostCommands) return false;
    commands_.push_back(std::move(command));
  }
  watch_.Wake();
  return true;
}

void ModelManager::RefuseLostWaiters() {
  std::vector<std::pair<Waiter, Status>> lost;
  {
    std::lock_guard lock(mutex_);
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      Status loss = LossOf(it->patience);
      if (loss.ok()) {
        ++it;
        continue;
      }
      lost.emplace_back(std::move(*it), std::move(loss));
      it = waiters_.erase(it);
    }
  }
  for (auto& [waiter, loss] : lost) waiter.done(std::move(loss));
}

}  // namespace onnxd
