#include "server/models/model_manager.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "server/models/batch_trial.h"

namespace onnxd {
namespace {

// How long files must stay as they are before they count as whole.
constexpr auto kMoment = std::chrono::milliseconds(200);
constexpr int64_t kFreshSeconds = 2;
constexpr size_t kMostCommands = 64;

RunFunction RunFunctionOf(const InferenceSession& session) {
  return [&session](std::span<const Value> inputs, const RunLimits& limits) {
    RunOptions options;
    options.deadline = limits.deadline;
    options.cancelled = limits.cancelled;
    return session.Run(inputs, options);
  };
}

// Why requests run alone; empty when they may share runs.
std::string WhyAlone(const ServerOptions::Batching& batching, const InferenceSession& session,
                     const std::atomic<bool>& stopping) {
  if (batching.mode == "off") return "batching.mode is off";
  if (batching.max_batch_size == 1) return "batching.max_batch_size is 1";
  if (!session.info().rows_depend.empty()) return session.info().rows_depend;
  return TryBatch(session, stopping);
}

// Whether somebody may still be writing.
bool IsFresh(const WantedVersion& version) {
  const int64_t age = std::time(nullptr) - version.changed;
  return age >= 0 && age < kFreshSeconds;
}

}  // namespace

ModelManager::ModelManager(const SessionOptions& session, const ServerOptions& options,
                           ModelRegistry& registry, Scheduler& scheduler, ServerMetrics& metrics)
    : session_(session),
      options_(options),
      registry_(registry),
      scheduler_(scheduler),
      metrics_(metrics),
      watch_(options.models.repository) {}

ModelManager::~ModelManager() { Stop(); }

void ModelManager::Expect(const std::vector<WantedVersion>& wanted) {
  for (const WantedVersion& version : wanted) registry_.Expect(version.model, version.version);
}

std::vector<Status> ModelManager::LoadAll(const std::vector<WantedVersion>& wanted) {
  std::vector<Status> failures;
  for (const WantedVersion& version : wanted) {
    if (stopping_) return failures;
    const Status status = LoadOrGiveUp(version, false);
    if (!status.ok()) failures.push_back(status);
  }
  first_failures_ = failures.size();
  done_.store(true, std::memory_order_release);
  return failures;
}

Status ModelManager::LoadOrGiveUp(const WantedVersion& wanted, bool try_batches) {
  const VersionKey key(wanted.model, wanted.version);
  auto loaded = Load(wanted);
  if (FingerprintOf(wanted) != wanted.fingerprint) {  // half of this and half of that: next time
    return Unavailable(StrCat(wanted.path, " changed while it was loaded"));
  }
  known_[key] = {wanted.fingerprint, loaded.ok() || registry_.Has(wanted.model, wanted.version)};
  if (loaded.ok()) {
    if (try_batches) TryBatches(**loaded);
    auto replaced = registry_.Publish(*std::move(loaded));
    if (replaced != nullptr) retired_.push_back(std::move(replaced));
    metrics_.SetModelState(wanted.model, wanted.version, true);
    metrics_.CountModelLoad(wanted.model, true);
    return Status::Ok();
  }
  const Status failure = loaded.status().WithContext(
      StrCat("model '", wanted.model, "' version ", wanted.version, " (", wanted.path, ")"));
  LogError(failure.ToString());
  registry_.GiveUp(wanted.model, wanted.version, std::string(loaded.status().message()));
  if (!known_[key].serving) metrics_.SetModelState(wanted.model, wanted.version, false);
  metrics_.CountModelLoad(wanted.model, false);
  return failure;
}

Result<std::shared_ptr<ModelVersion>> ModelManager::Load(const WantedVersion& wanted) {
  const auto begin = std::chrono::steady_clock::now();
  auto version = std::make_shared<ModelVersion>();
  version->model = wanted.model;
  version->version = wanted.version;
  version->metrics = &metrics_.ForModel(wanted.model, wanted.version);
  ONNXD_ASSIGN_OR_RETURN(version->session, InferenceSession::Load(wanted.path, session_));
  version->scheduled = std::make_shared<ScheduledModel>(
      wanted.model, RunFunctionOf(*version->session), *version->metrics);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  version->metrics->SetLoadDuration(took);
  const bool from_cache = version->session->from_cache();
  if (session_.cache != nullptr) metrics_.CountPreparedModel(from_cache ? "found" : "missing");
  LogInfo(StrCat("model '", wanted.model, "' version ", wanted.version,
                 from_cache ? " found in the cache, loaded in " : " loaded in ",
                 static_cast<int64_t>(took.count() * 1e6) / 1000, " ms"));
  return version;
}

void ModelManager::TryBatches(const ModelVersion& version) {
  const std::string why = WhyAlone(options_.batching, *version.session, stopping_);
  if (stopping_.load(std::memory_order_relaxed)) return;
  if (!why.empty()) {
    LogInfo(StrCat("model '", version.model, "': requests run alone, max_batch_size 1: ", why));
    return;
  }
  BatchSettings settings;
  settings.max_batch_size = options_.batching.max_batch_size;
  if (options_.batching.max_queue_delay_us >= 0) {
    settings.max_queue_delay = static_cast<double>(options_.batching.max_queue_delay_us) * 1e-6;
  }
  settings.target_p99 = static_cast<double>(options_.batching.target_p99_ms) * 1e-3;
  scheduler_.SetBatching(*version.scheduled, settings);
  version.joins_rows.store(true, std::memory_order_release);
  LogInfo(StrCat("model '", version.model, "': requests may share runs, up to ",
                 settings.max_batch_size, " rows"));
}

void ModelManager::Follow() {
  thread_ = std::thread([this] { Work(); });
}

void ModelManager::Stop() {
  stopping_ = true;
  watch_.Wake();
  if (thread_.joinable()) thread_.join();
  ObeyControls();
}

void ModelManager::Work() {
  const auto models = registry_.Snapshot();
  for (const auto& [name, versions] : *models) {
    for (const auto& [number, version] : versions) TryBatches(*version);
  }
  const bool follows = options_.models.control_mode == "poll";
  const auto interval = std::chrono::seconds(options_.models.poll_interval_s);
  while (!stopping_) {
    if (follows) watch_.Refresh();
    const bool busy = !retired_.empty() || !settled_;
    watch_.Wait(busy ? kMoment : std::chrono::milliseconds(interval));
    ObeyControls();
    if (follows && !stopping_) {
      FollowOnce();
      // Events that follow each other closely are one change.
      if (!settled_) std::this_thread::sleep_for(kMoment);
    }
    DropRetired();
  }
}

void ModelManager::FollowOnce() {
  const auto wanted = ScanRepository(options_.models.repository, options_.models.model_name,
                                     *ParseVersionPolicy(options_.models.versions));
  if (!wanted.ok()) {
    // What serves stays: a repository that cannot be read says nothing about its models.
    if (!scan_failed_) LogWarning(wanted.status().ToString());
    scan_failed_ = true;
    settled_ = true;
    return;
  }
  scan_failed_ = false;
  const std::vector<WantedVersion> to_load = Reconcile(*wanted, known_).load;
  settled_ = AreStable(*wanted) && std::none_of(to_load.begin(), to_load.end(), IsFresh);
  if (settled_) (void)Approach(*wanted, "");  // failures are logged
}

void ModelManager::Control(bool load, const std::string& model, Done done) {
  if (options_.models.control_mode != "explicit") {
    return done(FailedPrecondition(StrCat("models.control_mode is ", options_.models.control_mode,
                                          ": models are not loaded by request")));
  }
  if (!IsModelName(model)) return done(InvalidArgument("this cannot name a model"));
  {
    std::lock_guard lock(commands_mutex_);
    if (!stopping_ && commands_.size() < kMostCommands) {
      commands_.push_back({load, model, std::move(done)});
      done = nullptr;
    }
  }
  if (done) return done(Unavailable("too many loads wait, or the server is stopping"));
  watch_.Wake();
}

void ModelManager::ObeyControls() {
  std::vector<Command> commands;
  {
    std::lock_guard lock(commands_mutex_);
    commands.swap(commands_);
  }
  for (const Command& command : commands) {
    command.done(stopping_ ? Unavailable("the server is stopping")
                           : Obey(command.load, command.model));
  }
}

Status ModelManager::Obey(bool load, const std::string& model) {
  std::vector<WantedVersion> wanted;
  if (load) {
    ONNXD_ASSIGN_OR_RETURN(wanted,
                           ScanRepository(options_.models.repository, options_.models.model_name,
                                          *ParseVersionPolicy(options_.models.versions)));
    std::erase_if(wanted, [&](const WantedVersion& version) { return version.model != model; });
    if (wanted.empty()) return NotFound(StrCat("the repository has no model '", model, "'"));
  }
  if (!load && KnownOf(model).empty()) {
    return NotFound(StrCat("model '", model, "' is not loaded"));
  }
  return Approach(wanted, model);
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
    const Status loaded = LoadOrGiveUp(version, true);
    if (!loaded.ok()) failure = loaded;
  }
  for (const VersionKey& key : Reconcile(wanted, KnownOf(model)).unload) Unload(key);
  return failure;
}

bool ModelManager::AreStable(const std::vector<WantedVersion>& wanted) {
  std::map<VersionKey, uint64_t> scan;
  for (const WantedVersion& version : wanted) {
    scan[{version.model, version.version}] = version.fingerprint;
  }
  const bool stable = scan == last_scan_;
  last_scan_ = std::move(scan);
  return stable;
}

void ModelManager::Unload(const VersionKey& key) {
  known_.erase(key);
  auto removed = registry_.Remove(key.first, key.second);
  if (removed == nullptr) return;
  metrics_.SetModelState(key.first, key.second, false);
  LogInfo(StrCat("model '", key.first, "' version ", key.second, " is not served any more"));
  retired_.push_back(std::move(removed));
}

// Frees what no request holds any more, here and not on the thread of its last request.
void ModelManager::DropRetired() {
  std::erase_if(retired_, [](const auto& version) { return version.use_count() == 1; });
}

}  // namespace onnxd
