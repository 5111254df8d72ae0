#include "server/service/inference_service.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

// The request's inputs in the order of the signature.
Result<std::vector<Value>> OrderInputs(const ModelVersion& version, InferenceRequest& request) {
  const auto& signature = version.session->inputs();
  std::vector<Value> ordered(signature.size());
  for (NamedValue& input : request.inputs) {
    const auto found = std::find_if(signature.begin(), signature.end(),
                                    [&](const auto& s) { return s.name == input.name; });
    if (found == signature.end()) {
      std::vector<std::string> names;
      for (const auto& s : signature) names.push_back(s.name);
      return InvalidArgument(StrCat("model '", version.model, "' has no input '",
                                    input.name.substr(0, 128),
                                    "'; it takes: ", StrJoin(names, ", ")));
    }
    Value& slot = ordered[static_cast<size_t>(found - signature.begin())];
    if (!slot.absent()) {
      return InvalidArgument(StrCat("input '", input.name, "' is given twice"));
    }
    slot = std::move(input.value);
  }
  for (size_t i = 0; i < signature.size(); ++i) {
    if (ordered[i].absent()) {
      return InvalidArgument(StrCat("model '", version.model, "' needs input '", signature[i].name,
                                    "' of type ", ToString(signature[i].type)));
    }
    const Status status = version.session->CheckInput(i, ordered[i]);
    if (!status.ok()) return status.WithContext(StrCat("model '", version.model, "'"));
  }
  return ordered;
}

// Positions of the requested outputs; all when none is named.
Result<std::vector<size_t>> SelectOutputs(const ModelVersion& version,
                                          const std::vector<std::string>& names) {
  const auto& signature = version.session->outputs();
  std::vector<size_t> selected;
  if (names.empty()) {
    for (size_t i = 0; i < signature.size(); ++i) selected.push_back(i);
    return selected;
  }
  for (const std::string& name : names) {
    const auto found = std::find_if(signature.begin(), signature.end(),
                                    [&](const auto& s) { return s.name == name; });
    if (found == signature.end()) {
      return InvalidArgument(
          StrCat("model '", version.model, "' has no output '", name.substr(0, 128), "'"));
    }
    const auto index = static_cast<size_t>(found - signature.begin());
    if (std::find(selected.begin(), selected.end(), index) != selected.end()) {
      return InvalidArgument(StrCat("output '", name, "' is requested twice"));
    }
    selected.push_back(index);
  }
  return selected;
}

// The rows of a request for a model that computes them one by one, and what must be equal for
// requests to share a run. A request whose inputs have different numbers of rows runs alone, and
// fails alone.
void MarkRows(BatchRequest& request) {
  const int64_t rows = request.inputs[0].tensor().shape()[0];
  for (const Value& input : request.inputs) {
    const Shape& shape = input.tensor().shape();
    if (shape[0] != rows) return;
    for (int axis = 1; axis < shape.rank(); ++axis) request.shape_key += StrCat(shape[axis], " ");
    request.shape_key += "/";
  }
  request.rows = rows;
}

}  // namespace

InferenceService::InferenceService(const ModelRegistry& registry, ModelManager& manager,
                                   Scheduler& scheduler, ServerMetrics& metrics,
                                   std::string default_model, int64_t max_buffered_bytes)
    : registry_(registry),
      manager_(manager),
      scheduler_(scheduler),
      metrics_(metrics),
      default_model_(std::move(default_model)),
      max_buffered_bytes_(max_buffered_bytes) {}

bool InferenceService::Ready() const {
  return !draining_.load(std::memory_order_relaxed) && manager_.ready() &&
         (manager_.loads_by_request() || !registry_.Snapshot()->empty());
}

bool InferenceService::ModelReady(const std::string& model, const std::string& version) const {
  return registry_.Find(model, version).ok();
}

std::vector<std::string> InferenceService::ModelNames() const {
  std::vector<std::string> names;
  for (const auto& [name, versions] : *registry_.Snapshot()) names.push_back(name);
  return names;
}

Result<std::shared_ptr<const ModelVersion>> InferenceService::FindModel(
    const std::string& model, const std::string& version) const {
  if (!model.empty()) return registry_.Find(model, version);
  if (!default_model_.empty()) return registry_.Find(default_model_, version);
  if (!manager_.first_load_done()) return Unavailable("the models are still loading");
  const std::vector<std::string> names = ModelNames();
  if (names.size() == 1) return registry_.Find(names[0], version);
  if (names.empty()) return Unavailable("no model is loaded");
  return InvalidArgument(StrCat("several models are served and none is the default: ",
                                StrJoin(names, ", "), "; try POST /predict/", names[0]));
}

Result<ModelMetadata> InferenceService::Metadata(const std::string& model,
                                                 const std::string& version) const {
  ONNXD_ASSIGN_OR_RETURN(const auto found, registry_.Find(model, version));
  ModelMetadata metadata;
  metadata.name = found->model;
  const auto models = registry_.Snapshot();
  if (const auto versions = models->find(found->model); versions != models->end()) {
    for (const auto& [name, loaded] : versions->second) metadata.versions.push_back(name);
  }
  for (const auto& s : found->session->inputs()) metadata.inputs.push_back({s.name, s.type});
  for (const auto& s : found->session->outputs()) metadata.outputs.push_back({s.name, s.type});
  return metadata;
}

void InferenceService::Infer(std::shared_ptr<const ModelVersion> version, InferenceRequest request,
                             Protocol protocol, InferenceCallback done) {
  const auto begin = Clock::now();
  ModelMetrics& metrics = *version->metrics;
  metrics_.SetInFlight(in_flight_.fetch_add(1, std::memory_order_relaxed) + 1);
  const auto finish = [this, &metrics, protocol, begin,
                       done = std::move(done)](Result<InferenceResponse> result) {
    metrics.CountRequest(protocol, result.status().code());
    metrics.ObserveRequest(protocol, Clock::now() - begin);
    done(std::move(result));
    metrics_.SetInFlight(in_flight_.fetch_sub(1, std::memory_order_acq_rel) - 1);
  };
  auto inputs = OrderInputs(*version, request);
  if (!inputs.ok()) return finish(inputs.status());
  auto selected = SelectOutputs(*version, request.outputs);
  if (!selected.ok()) return finish(selected.status());
  BatchRequest queued;
  queued.inputs = std::move(*inputs);
  queued.deadline = request.deadline;
  queued.priority = request.priority;
  queued.cancelled = std::move(request.cancelled);
  if (version->joins_rows.load(std::memory_order_acquire)) MarkRows(queued);
  const auto scheduled = version->scheduled;
  queued.done = [version = std::move(version), id = std::move(request.id), finish, &metrics,
                 selected = std::move(*selected)](BatchResult result) {
    metrics.ObserveQueue(result.queue_time);
    if (!result.outputs.ok()) {
      return finish(result.outputs.status().WithContext(StrCat("model '", version->model, "'")));
    }
    metrics.ObserveCompute(result.compute_time);
    version->SaveToCacheOnce();
    InferenceResponse response;
    response.model = version->model;
    response.version = version->version;
    response.id = id;
    response.queue_time = result.queue_time;
    response.compute_time = result.compute_time;
    for (const size_t i : selected) {
      response.outputs.push_back(
          {version->session->outputs()[i].name, std::move((*result.outputs)[i])});
    }
    finish(std::move(response));
  };
  scheduler_.Submit(scheduled, std::move(queued));
}

bool InferenceService::AdmitBytes(int64_t bytes) {
  const int64_t now = buffered_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now > max_buffered_bytes_) {
    buffered_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    metrics_.CountShed("memory");
    return false;
  }
  metrics_.SetBufferedBytes(now);
  return true;
}

void InferenceService::ReleaseBytes(int64_t bytes) {
  metrics_.SetBufferedBytes(buffered_bytes_.fetch_sub(bytes, std::memory_order_relaxed) - bytes);
}

}  // namespace onnxd
