#include "server/models/model_manager.h"

#include <chrono>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {

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

Status ModelManager::Load(const WantedVersion& wanted) {
  const auto begin = std::chrono::steady_clock::now();
  auto version = std::make_shared<ModelVersion>();
  version->model = wanted.model;
  version->version = wanted.version;
  version->metrics = &metrics_.ForModel(wanted.model, wanted.version);
  ONNXD_ASSIGN_OR_RETURN(version->session, InferenceSession::Load(wanted.path, session_));
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
