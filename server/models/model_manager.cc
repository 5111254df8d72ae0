#include "server/models/model_manager.h"

#include <chrono>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "server/models/batch_trial.h"

namespace onnxd {
namespace {

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

}  // namespace

void ModelManager::Expect(const std::vector<WantedVersion>& wanted) {
  for (const WantedVersion& version : wanted) registry_.Expect(version.model, version.version);
}

std::vector<Status> ModelManager::LoadAll(const std::vector<WantedVersion>& wanted) {
  std::vector<Status> failures;
  for (const WantedVersion& version : wanted) {
    const Status status = Load(version);
    if (status.ok()) continue;
    const Status failure = status.WithContext(
        StrCat("model '", version.model, "' version ", version.version, " (", version.path, ")"));
    LogError(failure.ToString());
    registry_.GiveUp(version.model, version.version);
    metrics_.SetModelState(version.model, version.version, false);
    failures.push_back(failure);
  }
  done_.store(true, std::memory_order_release);
  return failures;
}

void ModelManager::TryBatches(const std::atomic<bool>& stopping) {
  const auto models = registry_.Snapshot();
  for (const auto& [name, versions] : *models) {
    for (const auto& [number, version] : versions) {
      if (stopping.load(std::memory_order_relaxed)) return;
      TryBatches(*version, stopping);
    }
  }
}

void ModelManager::TryBatches(const ModelVersion& version, const std::atomic<bool>& stopping) {
  const std::string why = WhyAlone(batching_, *version.session, stopping);
  if (stopping.load(std::memory_order_relaxed)) return;
  if (!why.empty()) {
    LogInfo(StrCat("model '", version.model, "': requests run alone, max_batch_size 1: ", why));
    return;
  }
  BatchSettings settings;
  settings.max_batch_size = batching_.max_batch_size;
  if (batching_.max_queue_delay_us >= 0) {
    settings.max_queue_delay = static_cast<double>(batching_.max_queue_delay_us) * 1e-6;
  }
  settings.target_p99 = static_cast<double>(batching_.target_p99_ms) * 1e-3;
  scheduler_.SetBatching(*version.scheduled, settings);
  version.joins_rows.store(true, std::memory_order_release);
  LogInfo(StrCat("model '", version.model, "': requests may share runs, up to ",
                 settings.max_batch_size, " rows"));
}

Status ModelManager::Load(const WantedVersion& wanted) {
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
  metrics_.SetModelState(wanted.model, wanted.version, true);
  registry_.Publish(std::move(version));
  LogInfo(StrCat("model '", wanted.model, "' version ", wanted.version,
                 from_cache ? " found in the cache, loaded in " : " loaded in ",
                 static_cast<int64_t>(took.count() * 1e6) / 1000, " ms"));
  return Status::Ok();
}

}  // namespace onnxd
