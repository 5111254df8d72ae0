#include "server/service/inference_service.h"

#include <algorithm>

#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "server/inference/route_point.h"
#include "server/models/ensemble.h"
#include "server/models/padding_plan.h"
#include "server/models/sequence_plan.h"
#include "server/service/ensemble_run.h"
#include "server/service/request_deadline.h"
#include "server/service/text_generation.h"
#include "server/texts/text_plan.h"
#include "server/tracing/request_span.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostReloads = 64;

// The request's inputs in the order of the signature.
Result<std::vector<Value>> OrderInputs(const ModelVersion& version, InferenceRequest& request) {
  const auto& signature = version.inputs;
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
  // A tokenizer makes them itself.
  if (version.padding != nullptr && !version.takes_texts) {
    ONNXD_RETURN_IF_ERROR(AddMasks(*version.padding, signature, ordered));
  }
  for (size_t i = 0; i < signature.size(); ++i) {
    if (ordered[i].absent()) {
      return InvalidArgument(StrCat("model '", version.model, "' needs input '", signature[i].name,
                                    "' of type ", ToString(signature[i].type)));
    }
    const Status status = CheckInput(signature[i], ordered[i]);
    if (!status.ok()) return status.WithContext(StrCat("model '", version.model, "'"));
  }
  return ordered;
}

// Positions of the requested outputs; all when none is named.
Result<std::vector<size_t>> SelectOutputs(const ModelVersion& version,
                                          const std::vector<std::string>& names) {
  const auto& signature = version.outputs;
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

InferenceService::Json JsonOf(const ServerOptions& options) {
  const std::string& form = options.server.json_non_finite;
  return {options.limits.json_depth, form == "token"   ? NonFinite::kToken
                                     : form == "error" ? NonFinite::kError
                                                       : NonFinite::kNull};
}

// Another server might have answered.
bool IsServersFault(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kInternal ||
         code == StatusCode::kUnknown || code == StatusCode::kDeadlineExceeded;
}

// For the analysis of the model's versions. What its client or the server gave up says nothing.
void NoteResult(const ModelVersion& version, const Status& status,
                std::chrono::nanoseconds compute_time) {
  if (version.rollout == nullptr || !version.rollout->analysis.active()) return;
  const StatusCode code = status.code();
  if (code == StatusCode::kCancelled || code == StatusCode::kUnavailable) return;
  const bool failed = code != StatusCode::kOk;
  version.rollout->analysis.Note(
      version.version, failed ? AnswerKind::kFailed : AnswerKind::kAnswered, compute_time);
}

// Whether a request for the one reads as one for the other.
bool HaveSameNames(const ModelVersion& a, const ModelVersion& b) {
  const auto same = [](const TensorSignature& x, const TensorSignature& y) {
    return x.name == y.name;
  };
  return &a == &b ||
         (std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(), same) &&
          std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(), same));
}

// `known`, or where there are none the version's tokenizer and itself.
std::shared_ptr<const ModelSteps> StepsOfTexts(const ModelVersion& version,
                                               std::shared_ptr<const ModelSteps> known) {
  if (known != nullptr) return known;
  return std::make_shared<const ModelSteps>(
      ModelSteps{version.tokenizing.get(), version.scheduled.get()});
}

}  // namespace

InferenceService::InferenceService(const ModelRegistry& registry, ModelManager& manager,
                                   Scheduler& scheduler, ServerMetrics& metrics,
                                   std::shared_ptr<MemoryAccount> memory, Tracer& tracer,
                                   const ServerOptions& options)
    : registry_(registry),
      manager_(manager),
      scheduler_(scheduler),
      metrics_(metrics),
      memory_(std::move(memory)),
      tracer_(tracer),
      json_(JsonOf(options)),
      quota_(options.limits.requests_per_client),
      response_cache_(metrics, memory_),
      shared_memory_(options.server.shared_memory),
      load_meter_(
          AvailableProcessors(), [this] { return ReadLoad(); }, Clock::now()),
      shadow_traffic_(metrics, [this] {
        const int64_t in_flight = in_flight_.load();
        return ShadowTraffic::Activity{answered_.load() + in_flight, in_flight};
      }) {
  Reconfigure(options);
}

void InferenceService::Reconfigure(const ServerOptions& options) {
  max_buffered_bytes_ = options.limits.buffered_bytes;
  response_cache_.SetLimit(options.limits.response_cache_bytes);
  request_log_.SetLines(options.log.requests == "off"   ? RequestLog::Lines::kNone
                        : options.log.requests == "all" ? RequestLog::Lines::kAll
                                                        : RequestLog::Lines::kNotable);
  std::lock_guard lock(mutex_);
  default_model_ = options.models.default_model;
}

void InferenceService::CountAnswer(const Status& status) {
  answered_.fetch_add(1, std::memory_order_relaxed);
  if (IsServersFault(status.code())) failed_.fetch_add(1, std::memory_order_relaxed);
}

LoadMeter::Reading InferenceService::ReadLoad() {
  const Scheduler::Load load = scheduler_.ObserveLoad();
  LoadMeter::Reading reading;
  reading.cpu_seconds = CpuSeconds();
  reading.answered = answered_.load(std::memory_order_relaxed);
  reading.failed = failed_.load(std::memory_order_relaxed);
  reading.mem_utilization = static_cast<double>(memory_->bytes()) /
                            static_cast<double>(std::max<int64_t>(1, memory_->limit()));
  reading.application_utilization = load.saturation;
  reading.queued = load.queued;
  return reading;
}

std::string InferenceService::default_model() const {
  std::lock_guard lock(mutex_);
  return default_model_;
}

// A request that was accepted, until its answer was given, or was lost for want of memory.
class InferenceService::InFlight {
 public:
  InFlight(InferenceService& service, const ModelVersion& version, RequestOrigin&& origin,
           Protocol protocol, InferenceCallback done);
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  Clock::time_point begin() const { return begin_; }
  // Once.
  void Finish(Result<InferenceResponse> result);

 private:
  InferenceService& service_;
  const std::shared_ptr<ModelMetrics> metrics_;
  const Clock::time_point begin_ = Clock::now(), arrived_;
  const TraceContext trace_;
  RequestRecord record_;
  const InferenceCallback done_;
};

InferenceService::InFlight::InFlight(InferenceService& service, const ModelVersion& version,
                                     RequestOrigin&& origin, Protocol protocol,
                                     InferenceCallback done)
    : service_(service),
      metrics_(version.metrics),
      arrived_(origin.arrived),
      trace_(std::move(origin.trace)),
      done_(std::move(done)) {
  record_.id = std::move(origin.id);
  record_.client = std::move(origin.client);
  record_.trace_id = trace_.trace_id;
  record_.model = version.model;
  record_.version = version.version;
  record_.protocol = protocol;
  record_.read = begin_ - arrived_;
  service_.metrics_.ObserveParse(protocol, begin_ - origin.received);
  service_.in_flight_.fetch_add(1, std::memory_order_relaxed);
  metrics_->Began();
}

InferenceService::InFlight::~InFlight() {
  metrics_->Ended();
  service_.in_flight_.fetch_sub(1, std::memory_order_acq_rel);
}

void InferenceService::InFlight::Finish(Result<InferenceResponse> result) {
  const auto now = Clock::now();
  record_.code = result.status().code();
  metrics_->ObserveRequest(record_.protocol, record_.code, now - begin_);
  service_.CountAnswer(result.status());
  record_.whole = now - arrived_;
  if (result.ok()) {
    record_.queue = result->queue_time;
    record_.compute = result->compute_time;
  } else {
    record_.error = result.status().message();
  }
  // Known and decided before the client can ask for it, or for another decision.
  service_.request_log_.Note(record_);
  const bool recorded = service_.tracer_.Records(trace_, record_.model);
  done_(std::move(result));
  const auto written = Clock::now() - now;
  service_.metrics_.ObserveSerialize(record_.protocol, written);
  if (recorded) service_.tracer_.Record(SpanOf(record_, trace_, written));
}

void InferenceService::Reload(Reloaded done) {
  {
    std::lock_guard lock(mutex_);
    if (reloads_.size() < kMostReloads) reloads_.push_back(std::exchange(done, nullptr));
  }
  if (done) return done(Unavailable("too many ask for it at once"));
  request_reload_();
}

void InferenceService::AnswerReloads(const Result<std::vector<std::string>>& result) {
  std::vector<Reloaded> reloads;
  {
    std::lock_guard lock(mutex_);
    reloads.swap(reloads_);
  }
  for (const Reloaded& done : reloads) done(result);
}

bool InferenceService::Ready() const {
  if (draining_.load(std::memory_order_relaxed) || !manager_.ready()) return false;
  // Models that go later do not turn it off, unless they are required.
  if (!was_ready_ && (manager_.loads_by_request() || !registry_.Snapshot()->empty())) {
    was_ready_ = true;
  }
  return was_ready_;
}

std::string InferenceService::Metrics() const {
  std::vector<ServerMetrics::VersionState> states;
  for (const ModelRegistry::Entry& entry : registry_.Index()) {
    if (entry.version.empty()) continue;
    const size_t state = entry.state == ModelRegistry::State::kLoading ? 0
                         : entry.state == ModelRegistry::State::kReady ? 1
                                                                       : 2;
    states.push_back({entry.model, entry.version, state});
  }
  metrics_.SetModelStates(states);
  for (const auto& [name, versions] : *registry_.Snapshot()) {
    const bool stateful = std::any_of(versions.begin(), versions.end(), [](const auto& version) {
      return version.second->sequence != nullptr;
    });
    if (stateful) metrics_.SetSequences(name, sequences_.Count(name));
  }
  metrics_.SetReady(Ready());
  scheduler_.ObserveLoad();
  return metrics_.Serialize();
}

bool InferenceService::ModelReady(const std::string& model, const std::string& version) const {
  return registry_.Find(model, version).ok();
}

std::vector<std::string> InferenceService::ModelNames() const {
  const auto models = registry_.Snapshot();
  std::vector<std::string> names;
  for (const auto& [name, versions] : *models) names.push_back(name);
  return names;
}

Result<std::shared_ptr<const ModelVersion>> InferenceService::FindModel(
    const std::string& model, const std::string& version, uint64_t point,
    const IsKnown& known) const {
  if (!model.empty()) return registry_.Find(model, version, point);
  if (const std::string named = default_model(); !named.empty()) {
    return registry_.Find(named, version, point);
  }
  if (!manager_.first_load_done()) return Unavailable("the models are still loading");
  std::vector<std::string> names = ModelNames();
  if (names.size() == 1) return registry_.Find(names[0], version, point);
  if (names.empty()) return Unavailable("no model is loaded");
  std::erase_if(names, [&known](const std::string& name) { return !known(name); });
  if (names.empty()) return InvalidArgument("several models are served and none is the default");
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
  for (const auto& s : found->inputs) metadata.inputs.push_back({s.name, s.type});
  for (const auto& s : found->outputs) metadata.outputs.push_back({s.name, s.type});
  metadata.writes_texts = found->writes_texts;
  return metadata;
}

Result<InferenceService::Rollout> InferenceService::RolloutOf(const std::string& model) const {
  ONNXD_RETURN_IF_ERROR(registry_.Find(model, "").status());
  return Rollout{registry_.Rollout(model), manager_.OverlayOf(model), manager_.RolledBack(model),
                 shadow_traffic_.Examples(model), manager_.keeps_rollouts()};
}

Result<std::vector<std::shared_ptr<const ModelVersion>>> InferenceService::Versions(
    const std::string& model, const std::string& version) const {
  std::vector<std::shared_ptr<const ModelVersion>> found;
  if (!version.empty()) {
    ONNXD_ASSIGN_OR_RETURN(found.emplace_back(), registry_.Find(model, version));
    return found;
  }
  const auto models = registry_.Snapshot();
  for (const auto& [name, versions] : *models) {
    if (!model.empty() && name != model) continue;
    for (const auto& [number, loaded] : versions) found.push_back(loaded);
  }
  if (!model.empty() && found.empty()) return registry_.Find(model, version).status();
  return found;
}

Result<InferenceService::ModelConfig> InferenceService::Config(const std::string& model,
                                                               const std::string& version) const {
  ModelConfig config;
  ONNXD_ASSIGN_OR_RETURN(config.version, registry_.Find(model, version));
  if (!config.version->evicted) config.batching = scheduler_.Batching(*config.version->scheduled);
  return config;
}

void InferenceService::Infer(std::shared_ptr<const ModelVersion> version,
                             InferenceRequest&& request, Protocol protocol,
                             InferenceCallback done) {
  Asker asker{std::move(request.origin.cancelled), "", 0, {}};
  if (version->ensemble != nullptr) {
    asker.request_id = request.origin.id;
    asker.point = RoutePoint(request.origin.route_key);
  }
  auto copy = CopyFor(version, request.origin.id);
  const auto in_flight = std::make_shared<InFlight>(*this, *version, std::move(request.origin),
                                                    protocol, std::move(done));
  asker.deadline = RequestDeadline(request, version->settings.batching, in_flight->begin());
  Answer(std::move(version), std::move(request), std::move(asker), std::move(copy),
         [in_flight](Result<InferenceResponse> result) { in_flight->Finish(std::move(result)); });
}

void InferenceService::Answer(Version version, InferenceRequest&& request, Asker asker,
                              std::shared_ptr<ShadowTraffic::Copy> copy, InferenceCallback finish) {
  auto inputs = OrderInputs(*version, request);
  auto selected = SelectOutputs(*version, request.outputs);
  if (!inputs.ok() || !selected.ok()) {
    NoteRefusal(*version);
    return finish(inputs.ok() ? selected.status() : inputs.status());
  }
  if (request.sequence.id.given() && version->sequence == nullptr && version->ensemble == nullptr) {
    return finish(InvalidArgument(
        StrCat("model '", version->model, "' keeps no state: it takes no sequence_id")));
  }
  Checked checked{std::move(*selected),
                  std::move(request.id),
                  std::move(request.sequence),
                  std::move(asker),
                  {},
                  std::move(copy),
                  nullptr};
  checked.request.inputs = std::move(*inputs);
  checked.request.deadline = checked.asker.deadline;
  checked.request.priority = request.priority;
  checked.request.cancelled = checked.asker.cancelled;
  checked.generation = std::move(request.generation);
  if (version->settings.response_cache.enabled) {
    return AnswerFromCache(std::move(version), std::move(checked), std::move(finish));
  }
  Compute(std::move(version), std::move(checked), std::move(finish));
}

void InferenceService::AnswerFromCache(Version version, Checked checked, InferenceCallback finish) {
  const auto held = std::make_shared<Checked>(std::move(checked));
  const auto answer = [this, version, held, finish](const Result<std::vector<Value>>& outputs) {
    if (outputs.status().code() == StatusCode::kAborted) {
      return Compute(version, std::move(*held), finish);
    }
    if (!outputs.ok()) return finish(outputs.status());
    InferenceResponse response{version->model, version->version, held->id, {}};
    for (size_t i = 0; i < held->selected.size(); ++i) {
      response.outputs.push_back({version->outputs[held->selected[i]].name, (*outputs)[i]});
    }
    finish(std::move(response));
  };
  const auto decision = response_cache_.Ask(
      {version, held->request.inputs, held->selected, held->request.deadline}, answer);
  if (!decision.computes) return;
  if (decision.computation != nullptr) {
    finish = [computation = decision.computation, finish](Result<InferenceResponse> result) {
      Result<std::vector<Value>> outputs = std::vector<Value>();
      if (result.ok()) {
        for (const NamedValue& output : result->outputs) outputs->push_back(output.value);
      } else {
        outputs = result.status();
      }
      computation->Settle(outputs);  // before its client can ask again
      finish(std::move(result));
    };
  }
  Compute(std::move(version), std::move(*held), std::move(finish));
}

void InferenceService::Compute(Version version, Checked checked, InferenceCallback finish) {
  if (version->ensemble != nullptr) {
    RunSteps(std::move(version), std::move(checked), std::move(finish));
  } else if (version->sequence != nullptr) {
    TakeTurn(std::move(version), std::move(checked), std::move(finish));
  } else {
    BringToMemory(std::move(version), std::move(checked), std::move(finish));
  }
}

// With those of an ensemble that this one is a step of.
std::shared_ptr<const ModelSteps> InferenceService::StepsOf(const Ensemble& ensemble,
                                                            const Asker& asker) const {
  auto steps = asker.steps == nullptr ? std::make_shared<ModelSteps>()
                                      : std::make_shared<ModelSteps>(*asker.steps);
  for (const Ensemble::Step& step : ensemble.steps) {
    const auto member = registry_.Find(step.model, step.version, asker.point);
    if (!member.ok()) continue;
    steps->push_back((*member)->scheduled.get());
    steps->push_back((*member)->tokenizing.get());
  }
  return steps;
}

void InferenceService::RunSteps(Version version, Checked checked, InferenceCallback finish) {
  version->last_used.store(Clock::now(), std::memory_order_relaxed);
  const auto ensemble = version->ensemble;
  checked.asker.steps = StepsOf(*ensemble, checked.asker);
  auto inputs = std::move(checked.request.inputs);
  const auto held = std::make_shared<const Checked>(std::move(checked));
  const RunStep run_step = [this, held](const Ensemble::Step& step, std::vector<NamedValue> values,
                                        std::vector<std::string> outputs, StepDone done) {
    auto member = registry_.Find(step.model, step.version, held->asker.point);
    if (!member.ok()) return done({member.status()});
    InferenceRequest request;
    request.inputs = std::move(values);
    request.outputs = std::move(outputs);
    request.priority = held->request.priority;
    if ((*member)->sequence != nullptr || (*member)->ensemble != nullptr) {
      request.sequence = held->sequence;
    }
    auto copy = CopyFor(*member, held->asker.request_id);
    Answer(*std::move(member), std::move(request), held->asker, std::move(copy),
           [done = std::move(done)](Result<InferenceResponse> response) {
             if (!response.ok()) return done({response.status()});
             std::vector<Value> made;
             for (NamedValue& output : response->outputs) made.push_back(std::move(output.value));
             done({std::move(made), response->queue_time, response->compute_time});
           });
  };
  RunEnsemble(
      ensemble, std::move(inputs), run_step,
      [version = std::move(version), held, finish = std::move(finish)](StepResult result) {
        version->metrics->ObserveQueue(result.queue_time);
        NoteResult(*version, result.outputs.status(), result.compute_time);
        if (!result.outputs.ok()) {
          return finish(
              result.outputs.status().WithContext(StrCat("model '", version->model, "'")));
        }
        InferenceResponse response{version->model, version->version, held->id, {}};
        response.queue_time = result.queue_time;
        response.compute_time = result.compute_time;
        for (const size_t i : held->selected) {
          response.outputs.push_back({version->outputs[i].name, std::move((*result.outputs)[i])});
        }
        finish(std::move(response));
      });
}

void InferenceService::TakeTurn(Version version, Checked checked, InferenceCallback finish) {
  const auto held = std::make_shared<Checked>(std::move(checked));
  sequences_.Enter(
      version, held->sequence,
      [this, version, held, finish](Result<std::unique_ptr<Sequences::Turn>> turn) {
        if (!turn.ok()) return finish(turn.status());
        Version pinned = (*turn)->version();
        if (!HaveSameNames(*pinned, *version)) {
          return finish(FailedPrecondition(StrCat(
              "the sequence began with version ", pinned->version, " of model '", version->model,
              "', which has other inputs or outputs than version ", version->version)));
        }
        held->turn = *std::move(turn);
        BringToMemory(std::move(pinned), std::move(*held), finish);
      });
}

void InferenceService::BringToMemory(Version version, Checked checked, InferenceCallback finish) {
  if (!version->evicted) return Tokenize(std::move(version), std::move(checked), std::move(finish));
  const ModelManager::Patience patience{checked.request.deadline, checked.request.cancelled};
  const auto waiting = std::make_shared<Checked>(std::move(checked));
  manager_.Revive(*version, patience, [this, waiting, finish](Result<Version> revived) {
    if (!revived.ok()) return finish(revived.status());
    Tokenize(*std::move(revived), std::move(*waiting), finish);
  });
}

// Of this request, where the model has a shadow version that is in memory.
std::shared_ptr<ShadowTraffic::Copy> InferenceService::CopyFor(
    const Version& version, const std::string& request_id) const {
  if (version->rollout == nullptr) return nullptr;
  const auto target = version->rollout->shadow.Take(version->version);
  if (!target) return nullptr;
  auto shadow = registry_.Find(version->model, target->version);
  const bool is_like = shadow.ok() && (*shadow)->session != nullptr &&
                       (*shadow)->sequence == nullptr && version->sequence == nullptr &&
                       !(*shadow)->writes_texts && !version->writes_texts;
  if (!is_like) return nullptr;
  return std::make_shared<ShadowTraffic::Copy>(
      ShadowTraffic::Copy{version, *std::move(shadow), {}, {}, target->tolerance, request_id});
}

void InferenceService::Tokenize(Version version, Checked checked, InferenceCallback finish) {
  if (version->generator != nullptr) {
    return WriteTexts(std::move(version), std::move(checked), std::move(finish));
  }
  if (checked.copy != nullptr) checked.copy->inputs = checked.request.inputs;
  if (version->texts == nullptr) {
    return Submit(std::move(version), std::move(checked), std::move(finish));
  }
  checked.asker.steps = StepsOfTexts(*version, checked.asker.steps);
  BatchRequest texts;
  texts.inputs = std::move(checked.request.inputs);
  texts.deadline = checked.request.deadline;
  texts.priority = checked.request.priority;
  texts.cancelled = checked.request.cancelled;
  texts.steps = checked.asker.steps;
  const auto held = std::make_shared<Checked>(std::move(checked));
  texts.done = [this, version, held, finish = std::move(finish)](BatchResult result) {
    if (!result.outputs.ok()) {
      version->metrics->ObserveQueue(result.queue_time);
      NoteResult(*version, result.outputs.status(), result.compute_time);
      return finish(result.outputs.status().WithContext(StrCat("model '", version->model, "'")));
    }
    held->texts_waited = result.queue_time;
    held->texts_took = result.compute_time;
    held->request.inputs = *std::move(result.outputs);
    held->text_mask = held->request.inputs.back().tensor();
    held->request.inputs.pop_back();
    Submit(version, std::move(*held), finish);
  };
  scheduler_.Submit(version->tokenizing, std::move(texts));
}

void InferenceService::WriteTexts(Version version, Checked checked, InferenceCallback finish) {
  version->last_used.store(Clock::now(), std::memory_order_relaxed);
  TextsAsked asked{checked.request.inputs[0].tensor(), std::move(checked.generation)};
  asked.priority = checked.request.priority;
  asked.deadline = checked.request.deadline;
  asked.cancelled = checked.request.cancelled;
  asked.steps = StepsOfTexts(*version, checked.asker.steps);
  GenerateTexts(
      scheduler_, version, std::move(asked),
      [version, id = std::move(checked.id),
       finish = std::move(finish)](Result<TextsWritten> written) {
        NoteResult(*version, written.status(),
                   written.ok() ? written->compute_time : std::chrono::nanoseconds(0));
        if (!written.ok()) {
          return finish(written.status().WithContext(StrCat("model '", version->model, "'")));
        }
        version->metrics->ObserveQueue(written->queue_time);
        version->SaveToCacheOnce();
        InferenceResponse response{version->model, version->version, id, {}};
        response.queue_time = written->queue_time;
        response.compute_time = written->compute_time;
        response.input_tokens = written->counts.prompt_tokens;
        response.generated = written->counts;
        response.outputs.push_back({version->outputs[0].name, written->texts});
        finish(std::move(response));
      });
}

void InferenceService::Submit(Version version, Checked checked, InferenceCallback finish) {
  version->last_used.store(Clock::now(), std::memory_order_relaxed);
  BatchRequest& request = checked.request;
  request.steps = checked.asker.steps;
  if (checked.turn != nullptr) {
    auto inputs = InputsOfTurn(*version->sequence, std::move(request.inputs),
                               checked.turn->states(), checked.turn->control());
    if (!inputs.ok()) return finish(inputs.status());
    request.inputs = *std::move(inputs);
    checked.turn->SetVersion(version);
  }
  Padded padded;
  if (version->padding != nullptr) {
    auto done = Pad(*version->padding, request.inputs);
    if (!done.ok()) return finish(done.status());
    padded = *std::move(done);
    if (padded.elements > 0) metrics_.CountPadding(version->model, padded.elements);
  }
  if (version->joins_rows()) MarkRows(request);
  const auto scheduled = version->scheduled;
  request.done = [this, version = std::move(version), copy = std::move(checked.copy),
                  turn = std::move(checked.turn), padded = std::move(padded),
                  id = std::move(checked.id), finish = std::move(finish),
                  selected = std::move(checked.selected), mask = std::move(checked.text_mask),
                  waited = checked.texts_waited,
                  took = checked.texts_took](BatchResult result) mutable {
    result.queue_time += waited;
    result.compute_time += took;
    version->metrics->ObserveQueue(result.queue_time);
    NoteResult(*version, result.outputs.status(), result.compute_time);
    if (result.outputs.ok() && version->padding != nullptr) {
      const Status cropped = Crop(*version->padding, padded, *result.outputs);
      if (!cropped.ok()) result.outputs = cropped;
    }
    if (result.outputs.ok() && version->texts != nullptr) {
      const Status pooled = Pool(*version->texts, mask, *result.outputs);
      if (!pooled.ok()) result.outputs = pooled;
    }
    if (result.outputs.ok() && turn != nullptr) {
      auto states = StatesOf(*version->sequence, *result.outputs);
      if (states.ok()) {
        turn->SetStates(*std::move(states));
      } else {
        result.outputs = states.status();
      }
    }
    if (!result.outputs.ok()) {
      if (turn != nullptr) turn->End();
      finish(result.outputs.status().WithContext(StrCat("model '", version->model, "'")));
      turn.reset();  // now: the next may begin
      return;
    }
    const bool in_sequence = turn != nullptr;
    if (in_sequence) turn->End();
    version->SaveToCacheOnce();
    if (copy != nullptr) copy->outputs = *result.outputs;
    InferenceResponse response{version->model, version->version, id, {}};
    response.queue_time = result.queue_time;
    response.compute_time = result.compute_time;
    if (mask.defined()) response.input_tokens = CountTokens(mask);
    for (const size_t i : selected) {
      const size_t output = in_sequence ? version->sequence->client_outputs[i] : i;
      response.outputs.push_back({version->outputs[i].name, std::move((*result.outputs)[output])});
    }
    finish(std::move(response));
    turn.reset();
    if (copy != nullptr) shadow_traffic_.Offer(std::move(*copy));
  };
  scheduler_.Submit(scheduled, std::move(request));
}

void InferenceService::NoteRefusal(const ModelVersion& version) {
  if (version.rollout == nullptr || !version.rollout->analysis.active()) return;
  version.rollout->analysis.Note(version.version, AnswerKind::kRefused, {});
}

void InferenceService::NoteUnrouted(Protocol protocol, const Status& status,
                                    const RequestOrigin& origin) {
  metrics_.CountUnroutedRequest(protocol, status.code());
  CountAnswer(status);
  RequestRecord record;
  record.id = origin.id;
  record.client = origin.client;
  record.trace_id = origin.trace.trace_id;
  record.protocol = protocol;
  record.code = status.code();
  record.error = status.message();
  record.whole = record.read = Clock::now() - origin.arrived;
  if (tracer_.Records(origin.trace, "")) {
    tracer_.Record(SpanOf(record, origin.trace, std::chrono::nanoseconds(0)));
  }
  request_log_.Note(record);
}

Result<ClientQuota::Ticket> InferenceService::EnterClient(const ModelVersion& version,
                                                          const RequestOrigin& origin) {
  auto entry = quota_.Enter(origin.client);
  if (!entry.admitted) {
    metrics_.CountShed("client");
    return ResourceExhausted(
        StrCat("client ", origin.client, " has limits.requests_per_client requests"));
  }
  const Status paced =
      rate_limiter_.Enter(version.model, version.settings.rate_limit, origin.api_key, Clock::now());
  if (!paced.ok()) {
    metrics_.CountShed("rate");
    return paced;
  }
  return std::move(entry.ticket);
}

bool InferenceService::AdmitBytes(int64_t bytes) {
  const int64_t now = buffered_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now > max_buffered_bytes_ || !memory_->Add(bytes)) {
    buffered_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    metrics_.CountShed("memory");
    return false;
  }
  metrics_.SetBufferedBytes(now);
  return true;
}

void InferenceService::ReleaseBytes(int64_t bytes) {
  memory_->Release(bytes);
  metrics_.SetBufferedBytes(buffered_bytes_.fetch_sub(bytes, std::memory_order_relaxed) - bytes);
}

}  // namespace onnxd
