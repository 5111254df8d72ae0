#include "server/metrics/server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>

#include "server/metrics/process_metrics.h"

namespace onnxd {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05,    0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};

const prometheus::Histogram::BucketBoundaries kRows = {1, 2, 4, 8, 16, 32, 64, 128, 256};

prometheus::Histogram::BucketBoundaries BoundariesOf(const std::vector<int64_t>& microseconds) {
  if (microseconds.empty()) return kSeconds;
  prometheus::Histogram::BucketBoundaries seconds;
  for (const int64_t bound : microseconds) seconds.push_back(static_cast<double>(bound) / 1e6);
  return seconds;
}

const char* ProtocolName(Protocol protocol) {
  return protocol == Protocol::kHttp ? "http" : "grpc";
}

const prometheus::Histogram::BucketBoundaries kFill = {0.1, 0.25, 0.5, 0.75, 0.9, 1};

constexpr size_t kMostVersions = 2000;

}  // namespace

struct ModelMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : requests(
            BuildCounter()
                .Name("onnxd_requests_total")
                .Help("Inference requests by model, version, protocol and canonical status code")
                .Register(registry)),
        request_duration(BuildHistogram()
                             .Name("onnxd_request_duration_seconds")
                             .Help("From a request's last byte to its answer being ready to send")
                             .Register(registry)),
        queue_duration(BuildHistogram()
                           .Name("onnxd_queue_duration_seconds")
                           .Help("Waiting for an executor")
                           .Register(registry)),
        compute_duration(BuildHistogram()
                             .Name("onnxd_compute_duration_seconds")
                             .Help("One run of the model by phase: input (joining rows of "
                                   "requests), run, output (parting them)")
                             .Register(registry)),
        batch_wait(BuildHistogram()
                       .Name("onnxd_batch_wait_seconds")
                       .Help("A run's wait for more rows while an executor was idle, part of "
                             "onnxd_queue_duration_seconds")
                       .Register(registry)),
        batch_fill(BuildHistogram()
                       .Name("onnxd_batch_fill_ratio")
                       .Help("Rows that one run computed by the most it may, of models that batch")
                       .Register(registry)),
        busy(BuildCounter()
                 .Name("onnxd_instance_busy_seconds_total")
                 .Help("Time that executors spent on a model's runs")
                 .Register(registry)),
        queue_depth(BuildGauge()
                        .Name("onnxd_queue_depth")
                        .Help("Requests waiting for an executor")
                        .Register(registry)),
        in_flight(BuildGauge()
                      .Name("onnxd_inflight_requests")
                      .Help("Requests accepted and not yet answered")
                      .Register(registry)),
        last_load(BuildGauge()
                      .Name("onnxd_model_last_load_timestamp_seconds")
                      .Help("When the last load of a model version ended")
                      .Register(registry)),
        batch_size(
            BuildHistogram()
                .Name("onnxd_batch_size")
                .Help("Rows that one run of the model computed, one for a request without rows")
                .Register(registry)),
        non_finite(BuildCounter()
                       .Name("onnxd_non_finite_outputs_total")
                       .Help("NaN and infinities in outputs that were written as JSON")
                       .Register(registry)),
        load_duration(BuildGauge()
                          .Name("onnxd_model_load_duration_seconds")
                          .Help("Time the last load of a model version took")
                          .Register(registry)),
        model_memory(
            BuildGauge()
                .Name("onnxd_model_memory_bytes")
                .Help("Memory of a model version: what it held when it was loaded, and what its "
                      "runs use and keep")
                .Register(registry)),
        model_evictions(BuildCounter()
                            .Name("onnxd_model_evictions_total")
                            .Help("Times a model left the memory to others")
                            .Register(registry)),
        model_rollbacks(BuildCounter()
                            .Name("onnxd_model_rollbacks_total")
                            .Help("Times a version of a model was taken back, by reason: errors, "
                                  "latency or request")
                            .Register(registry)),
        shadow_requests(BuildCounter()
                            .Name("onnxd_shadow_requests_total")
                            .Help("Copies of requests for a shadow version, by outcome: same, "
                                  "different, failed or dropped")
                            .Register(registry)),
        response_cache(BuildCounter()
                           .Name("onnxd_response_cache_requests_total")
                           .Help("Requests of models with a response cache, by result: hit, miss "
                                 "or joined (an equal one was being computed)")
                           .Register(registry)),
        padding(BuildCounter()
                    .Name("onnxd_padding_elements_total")
                    .Help("Elements that were added to inputs to make them one of few sizes")
                    .Register(registry)),
        sequences(BuildGauge()
                      .Name("onnxd_sequences")
                      .Help("Sequences of a stateful model that are not over")
                      .Register(registry)),
        first_token(BuildHistogram()
                        .Name("onnxd_generation_first_token_seconds")
                        .Help("From a request's tokens to the first one of its answer")
                        .Register(registry)),
        next_token(BuildHistogram()
                       .Name("onnxd_generation_token_seconds")
                       .Help("Between two tokens of an answer")
                       .Register(registry)),
        tokens(BuildCounter()
                   .Name("onnxd_generation_tokens_total")
                   .Help("Tokens of models that write texts, by kind: prompt or generated")
                   .Register(registry)),
        generating(BuildGauge()
                       .Name("onnxd_generation_sequences")
                       .Help("Texts of a model by state: writing or waiting")
                       .Register(registry)),
        model_loads(BuildCounter()
                        .Name("onnxd_model_loads_total")
                        .Help("Loads of versions of a model, by result: succeeded or failed")
                        .Register(registry)),
        model_state(BuildGauge()
                        .Name("onnxd_model_state")
                        .Help("1 for the state that a model version is in")
                        .Register(registry)) {}

  prometheus::Family<prometheus::Counter>& requests;
  prometheus::Family<prometheus::Histogram>& request_duration;
  prometheus::Family<prometheus::Histogram>& queue_duration;
  prometheus::Family<prometheus::Histogram>& compute_duration;
  prometheus::Family<prometheus::Histogram>& batch_wait;
  prometheus::Family<prometheus::Histogram>& batch_fill;
  prometheus::Family<prometheus::Counter>& busy;
  prometheus::Family<prometheus::Gauge>& queue_depth;
  prometheus::Family<prometheus::Gauge>& in_flight;
  prometheus::Family<prometheus::Gauge>& last_load;
  prometheus::Family<prometheus::Histogram>& batch_size;
  prometheus::Family<prometheus::Counter>& non_finite;
  prometheus::Family<prometheus::Gauge>& load_duration;
  prometheus::Family<prometheus::Gauge>& model_memory;
  prometheus::Family<prometheus::Counter>& model_evictions;
  prometheus::Family<prometheus::Counter>& model_rollbacks;
  prometheus::Family<prometheus::Counter>& shadow_requests;
  prometheus::Family<prometheus::Counter>& response_cache;
  prometheus::Family<prometheus::Counter>& padding;
  prometheus::Family<prometheus::Gauge>& sequences;
  prometheus::Family<prometheus::Histogram>& first_token;
  prometheus::Family<prometheus::Histogram>& next_token;
  prometheus::Family<prometheus::Counter>& tokens;
  prometheus::Family<prometheus::Gauge>& generating;
  prometheus::Family<prometheus::Counter>& model_loads;
  prometheus::Family<prometheus::Gauge>& model_state;
};

struct ServerMetrics::State {
  State()
      : families(registry),
        build_info(BuildGauge()
                       .Name("onnxd_build_info")
                       .Help("Always 1; the version is a label")
                       .Register(registry)
                       .Add({{"version", ONNXD_VERSION}})),
        ready(BuildGauge()
                  .Name("onnxd_ready")
                  .Help("1 while the server reports itself ready")
                  .Register(registry)
                  .Add({})),
        saturation(BuildGauge()
                       .Name("onnxd_saturation_ratio")
                       .Help("Executors at work (a mean of about 10 s) and seconds of work that "
                             "wait, by the number of executors: at 1 all are busy, above it work "
                             "piles up")
                       .Register(registry)
                       .Add({})),
        source_syncs(BuildCounter()
                         .Name("onnxd_source_syncs_total")
                         .Help("Looks at remote repositories, by result: succeeded or failed")
                         .Register(registry)),
        source_bytes(BuildCounter()
                         .Name("onnxd_source_bytes_total")
                         .Help("Bytes that were downloaded from remote repositories")
                         .Register(registry)
                         .Add({})),
        response_cache_bytes(BuildGauge()
                                 .Name("onnxd_response_cache_bytes")
                                 .Help("Bytes of requests and answers in the response cache")
                                 .Register(registry)
                                 .Add({})),
        response_cache_evictions(BuildCounter()
                                     .Name("onnxd_response_cache_evictions_total")
                                     .Help("Answers that left the response cache to others")
                                     .Register(registry)
                                     .Add({})),
        buffered_bytes(BuildGauge()
                           .Name("onnxd_buffered_request_bytes")
                           .Help("Bytes of request bodies in memory")
                           .Register(registry)
                           .Add({})),
        accept_errors(BuildCounter()
                          .Name("onnxd_accept_errors_total")
                          .Help("Failed accept() calls that the listener survived")
                          .Register(registry)
                          .Add({})),
        tls_failures(BuildCounter()
                         .Name("onnxd_tls_handshake_failures_total")
                         .Help("Connections that ended before or in their TLS handshake")
                         .Register(registry)
                         .Add({})),
        tls_reloads(BuildCounter()
                        .Name("onnxd_tls_reloads_total")
                        .Help("Times changed certificate files were read, by result")
                        .Register(registry)),
        tls_expiry(BuildGauge()
                       .Name("onnxd_tls_certificate_expiry_timestamp_seconds")
                       .Help("When the certificate of the ports expires; 0 without TLS")
                       .Register(registry)
                       .Add({})),
        connections(BuildGauge()
                        .Name("onnxd_connections")
                        .Help("Open client connections")
                        .Register(registry)),
        connections_total(BuildCounter()
                              .Name("onnxd_connections_total")
                              .Help("Client connections accepted")
                              .Register(registry)),
        shed(BuildCounter()
                 .Name("onnxd_requests_shed_total")
                 .Help("Requests refused without running the model, by reason")
                 .Register(registry)),
        spans(BuildCounter()
                  .Name("onnxd_trace_spans_total")
                  .Help("Spans of requests for the collector, by what became of them")
                  .Register(registry)),
        prepared_models(BuildCounter()
                            .Name("onnxd_prepared_models_total")
                            .Help("Models looked for in the cache of prepared models, by result")
                            .Register(registry)),
        config_reloads(BuildCounter()
                           .Name("onnxd_config_reloads_total")
                           .Help("Times the configuration was read again, by result")
                           .Register(registry)),
        access_refusals(BuildCounter()
                            .Name("onnxd_access_refusals_total")
                            .Help("Calls refused for their key or the lack of one, by code")
                            .Register(registry)),
        cache_entries(BuildGauge()
                          .Name("onnxd_prepared_model_entries")
                          .Help("Entries of the cache of prepared models since the start that were "
                                "damaged, stored, or not stored for an error")
                          .Register(registry)),
        parse_duration(BuildHistogram()
                           .Name("onnxd_parse_duration_seconds")
                           .Help("From a request's last byte to its tensors being checked")
                           .Register(registry)),
        serialize_duration(BuildHistogram()
                               .Name("onnxd_serialize_duration_seconds")
                               .Help("Writing an answer, until it is handed to its connection")
                               .Register(registry)),
        memory(BuildGauge()
                   .Name("onnxd_memory_bytes")
                   .Help("Models, their runs and request bodies, with what loads have reserved")
                   .Register(registry)
                   .Add({})),
        memory_limit(BuildGauge()
                         .Name("onnxd_memory_limit_bytes")
                         .Help("limits.memory_bytes, or what it comes to")
                         .Register(registry)
                         .Add({})),
        memory_refusals(BuildCounter()
                            .Name("onnxd_memory_refusals_total")
                            .Help("Allocations and loads refused for that limit")
                            .Register(registry)
                            .Add({})),
        device_lost(BuildGauge()
                        .Name("onnxd_device_lost")
                        .Help("1: the device stopped working, and this process ends")
                        .Register(registry)),
        device_memory(BuildGauge()
                          .Name("onnxd_device_memory_bytes")
                          .Help("Memory of a device: total, what buffers of this process use, what "
                                "is kept for later ones, what all processes use")
                          .Register(registry)),
        device_utilization(BuildGauge()
                               .Name("onnxd_device_utilization_ratio")
                               .Help("Time in which kernels ran, by whomever")
                               .Register(registry)),
        device_power(BuildGauge()
                         .Name("onnxd_device_power_watts")
                         .Help("What the device takes")
                         .Register(registry)),
        process(registry) {
    build_info.Set(1);
    for (const char* result : {"sent", "dropped", "failed"}) spans.Add({{"result", result}});
    for (const char* reason : {"queue_full", "deadline", "memory", "client", "rate", "drain"}) {
      shed.Add({{"reason", reason}});
    }
    for (const char* result : {"succeeded", "failed"}) {
      config_reloads.Add({{"result", result}});
      tls_reloads.Add({{"result", result}});
    }
    for (const Protocol protocol : {Protocol::kHttp, Protocol::kGrpc}) {
      const auto index = static_cast<size_t>(protocol);
      open[index] = &connections.Add({{"protocol", ProtocolName(protocol)}});
      parse[index] = &parse_duration.Add({{"protocol", ProtocolName(protocol)}}, kSeconds);
      serialize[index] = &serialize_duration.Add({{"protocol", ProtocolName(protocol)}}, kSeconds);
      opened[index] = &connections_total.Add({{"protocol", ProtocolName(protocol)}});
    }
  }

  prometheus::Registry registry;
  ModelMetrics::Families families;
  prometheus::Gauge& build_info;
  prometheus::Gauge& ready;
  prometheus::Gauge& saturation;
  prometheus::Family<prometheus::Counter>& source_syncs;
  prometheus::Counter& source_bytes;
  prometheus::Gauge& response_cache_bytes;
  prometheus::Counter& response_cache_evictions;
  prometheus::Gauge& buffered_bytes;
  prometheus::Counter& accept_errors;
  prometheus::Counter& tls_failures;
  prometheus::Family<prometheus::Counter>& tls_reloads;
  prometheus::Gauge& tls_expiry;
  prometheus::Family<prometheus::Gauge>& connections;
  prometheus::Family<prometheus::Counter>& connections_total;
  prometheus::Family<prometheus::Counter>& shed;
  prometheus::Family<prometheus::Counter>& spans;
  prometheus::Family<prometheus::Counter>& prepared_models;
  prometheus::Family<prometheus::Counter>& config_reloads;
  prometheus::Family<prometheus::Counter>& access_refusals;
  prometheus::Family<prometheus::Gauge>& cache_entries;
  prometheus::Family<prometheus::Histogram>& parse_duration;
  prometheus::Family<prometheus::Histogram>& serialize_duration;
  prometheus::Gauge& memory;
  prometheus::Gauge& memory_limit;
  prometheus::Counter& memory_refusals;
  prometheus::Family<prometheus::Gauge>& device_lost;
  prometheus::Family<prometheus::Gauge>& device_memory;
  prometheus::Family<prometheus::Gauge>& device_utilization;
  prometheus::Family<prometheus::Gauge>& device_power;
  ProcessMetrics process;
  prometheus::Gauge* open[2];
  prometheus::Counter* opened[2];
  prometheus::Histogram* parse[2];
  prometheus::Histogram* serialize[2];
  std::mutex mutex;
  std::shared_ptr<MemoryAccount> whole;  // guarded by mutex
  struct Version {
    std::shared_ptr<ModelMetrics> metrics;
    std::chrono::steady_clock::time_point used;  // seen in use
  };
  std::chrono::seconds keep_unused{0};
  std::map<std::pair<std::string, std::string>, Version> models;  // guarded by mutex
  using States = std::array<prometheus::Gauge*, kModelStates.size()>;
  std::map<std::pair<std::string, std::string>, States> states;  // guarded by mutex

  std::shared_ptr<ModelMetrics> Create(const std::string& model, const std::string& version,
                                       const std::vector<int64_t>& duration_buckets_us);
  void Remove(const ModelMetrics& metrics);
};

void ModelMetrics::ObserveRequest(Protocol protocol, StatusCode code,
                                  std::chrono::nanoseconds duration) {
  request_[static_cast<size_t>(protocol)]->Observe(Seconds(duration).count());
  statistics_.CountAnswer(code == StatusCode::kOk, duration);
  if (code == StatusCode::kOk) {
    success_[static_cast<size_t>(protocol)]->Increment();
    return;
  }
  std::lock_guard lock(*mutex_);
  prometheus::Counter*& failures = failures_[{protocol, code}];
  if (failures == nullptr) {
    failures = &families_->requests.Add({{"model", model_},
                                         {"version", version_},
                                         {"protocol", ProtocolName(protocol)},
                                         {"code", std::string(StatusCodeName(code))}});
  }
  failures->Increment();
}

void ModelMetrics::ObserveQueue(std::chrono::nanoseconds duration) {
  queue_->Observe(Seconds(duration).count());
  statistics_.CountQueue(duration);
}

void ModelMetrics::ObserveBatchWait(std::chrono::nanoseconds duration) {
  batch_wait_->Observe(Seconds(duration).count());
}

void ModelMetrics::ObserveRun(int64_t rows, int64_t most, int64_t requests, const RunTimes& times) {
  batch_size_->Observe(static_cast<double>(rows));
  if (most > 1) batch_fill_->Observe(static_cast<double>(rows) / static_cast<double>(most));
  busy_->Increment(Seconds(times.input + times.run + times.output).count());
  const std::chrono::nanoseconds phases[] = {times.input, times.run, times.output};
  for (size_t i = 0; i < std::size(phases); ++i) compute_[i]->Observe(Seconds(phases[i]).count());
  statistics_.CountRun(rows, requests, times);
}

void ModelMetrics::CountNonFinite(int64_t numbers) {
  if (numbers > 0) non_finite_->Increment(static_cast<double>(numbers));
}

void ModelMetrics::AddGeneration() {
  std::lock_guard lock(*mutex_);
  if (first_token_ != nullptr) return;
  const prometheus::Labels labels = {{"model", model_}, {"version", version_}};
  constexpr const char *kKinds[] = {"prompt", "generated"}, *kStates[] = {"writing", "waiting"};
  for (size_t i = 0; i < 2; ++i) {
    prometheus::Labels with = labels;
    with["kind"] = kKinds[i];
    tokens_[i] = &families_->tokens.Add(with);
    with.erase("kind");
    with["state"] = kStates[i];
    generating_[i] = &families_->generating.Add(with);
  }
  next_token_ = &families_->next_token.Add(labels, kSeconds);
  first_token_ = &families_->first_token.Add(labels, kSeconds);
}

void ModelMetrics::ObserveToken(bool first, std::chrono::nanoseconds duration) {
  (first ? first_token_ : next_token_)->Observe(Seconds(duration).count());
}

void ModelMetrics::CountTokens(int64_t prompt, int64_t generated) {
  tokens_[0]->Increment(static_cast<double>(prompt));
  tokens_[1]->Increment(static_cast<double>(generated));
}

void ModelMetrics::SetSequences(int64_t writing, int64_t waiting) {
  generating_[0]->Set(static_cast<double>(writing));
  generating_[1]->Set(static_cast<double>(waiting));
}

void ModelMetrics::SetMemory(const std::shared_ptr<MemoryAccount>& memory, int64_t weights) {
  std::lock_guard lock(*mutex_);
  memory_ = memory;
  weights_ = weights;
}

void ModelMetrics::ObserveMemory() {
  const auto memory = memory_.lock();
  const int64_t all = memory == nullptr ? 0 : memory->bytes();
  const int64_t weights = std::min(all, weights_);
  weights_bytes_->Set(static_cast<double>(weights));
  arena_bytes_->Set(static_cast<double>(all - weights));
}

void ModelMetrics::SetLoadDuration(Seconds duration) {
  load_duration_->Set(duration.count());
  last_load_->SetToCurrentTime();
}

ServerMetrics::ServerMetrics(std::chrono::seconds keep_unused) : state_(std::make_unique<State>()) {
  state_->keep_unused = keep_unused;
}
ServerMetrics::~ServerMetrics() = default;

std::shared_ptr<ModelMetrics> ServerMetrics::State::Create(
    const std::string& model, const std::string& version,
    const std::vector<int64_t>& duration_buckets_us) {
  const auto durations = BoundariesOf(duration_buckets_us);
  const auto created = std::make_shared<ModelMetrics>();
  const prometheus::Labels labels = {{"model", model}, {"version", version}};
  created->families_ = &families;
  created->mutex_ = &mutex;
  created->model_ = model;
  created->version_ = version;
  created->queue_ = &families.queue_duration.Add(labels, durations);
  constexpr const char* kPhases[] = {"input", "run", "output"};
  for (size_t i = 0; i < std::size(kPhases); ++i) {
    prometheus::Labels with_phase = labels;
    with_phase["phase"] = kPhases[i];
    created->compute_[i] = &families.compute_duration.Add(with_phase, durations);
  }
  created->batch_wait_ = &families.batch_wait.Add(labels, durations);
  created->batch_size_ = &families.batch_size.Add(labels, kRows);
  created->batch_fill_ = &families.batch_fill.Add(labels, kFill);
  created->busy_ = &families.busy.Add(labels);
  created->non_finite_ = &families.non_finite.Add(labels);
  created->load_duration_ = &families.load_duration.Add(labels);
  created->last_load_ = &families.last_load.Add(labels);
  prometheus::Labels with_kind = labels;
  with_kind["kind"] = "weights";
  created->weights_bytes_ = &families.model_memory.Add(with_kind);
  with_kind["kind"] = "arena";
  created->arena_bytes_ = &families.model_memory.Add(with_kind);
  created->queue_depth_ = &families.queue_depth.Add(labels);
  created->in_flight_gauge_ = &families.in_flight.Add(labels);
  for (const Protocol protocol : {Protocol::kHttp, Protocol::kGrpc}) {
    prometheus::Labels with_protocol = labels;
    with_protocol["protocol"] = ProtocolName(protocol);
    const auto index = static_cast<size_t>(protocol);
    created->request_[index] = &families.request_duration.Add(with_protocol, durations);
    with_protocol["code"] = "OK";
    created->success_[index] = &families.requests.Add(with_protocol);
  }
  return created;
}

void ServerMetrics::State::Remove(const ModelMetrics& metrics) {
  families.queue_duration.Remove(metrics.queue_);
  for (prometheus::Histogram* phase : metrics.compute_) families.compute_duration.Remove(phase);
  families.batch_wait.Remove(metrics.batch_wait_);
  families.batch_size.Remove(metrics.batch_size_);
  families.batch_fill.Remove(metrics.batch_fill_);
  families.busy.Remove(metrics.busy_);
  families.non_finite.Remove(metrics.non_finite_);
  if (metrics.first_token_ != nullptr) {
    families.first_token.Remove(metrics.first_token_);
    families.next_token.Remove(metrics.next_token_);
    for (prometheus::Counter* tokens : metrics.tokens_) families.tokens.Remove(tokens);
    for (prometheus::Gauge* state : metrics.generating_) families.generating.Remove(state);
  }
  families.load_duration.Remove(metrics.load_duration_);
  families.last_load.Remove(metrics.last_load_);
  families.model_memory.Remove(metrics.weights_bytes_);
  families.model_memory.Remove(metrics.arena_bytes_);
  families.queue_depth.Remove(metrics.queue_depth_);
  families.in_flight.Remove(metrics.in_flight_gauge_);
  for (prometheus::Histogram* request : metrics.request_) families.request_duration.Remove(request);
  for (prometheus::Counter* success : metrics.success_) families.requests.Remove(success);
  for (const auto& [key, failures] : metrics.failures_) families.requests.Remove(failures);
}

std::shared_ptr<ModelMetrics> ServerMetrics::ForModel(
    const std::string& model, const std::string& version,
    const std::vector<int64_t>& duration_buckets_us) {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(state_->mutex);
  std::pair<std::string, std::string> key = {model, version};
  if (!state_->models.contains(key) && state_->models.size() >= kMostVersions) {
    key = {"other", "other"};
  }
  auto& [metrics, used] = state_->models[key];
  used = now;
  if (metrics == nullptr) metrics = state_->Create(key.first, key.second, duration_buckets_us);
  return metrics;
}

void ServerMetrics::SetModelStates(const std::vector<VersionState>& states) {
  std::lock_guard lock(state_->mutex);
  std::map<std::pair<std::string, std::string>, State::States> kept;
  for (const VersionState& version : states) {
    if (kept.size() == kMostVersions) break;
    const auto key = std::make_pair(version.model, version.version);
    auto known = state_->states.extract(key);
    State::States& gauges = kept[key];
    for (size_t i = 0; i < gauges.size(); ++i) {
      gauges[i] =
          known ? known.mapped()[i]
                : &state_->families.model_state.Add({{"model", version.model},
                                                     {"version", version.version},
                                                     {"state", std::string(kModelStates[i])}});
      gauges[i]->Set(i == version.state ? 1 : 0);
    }
  }
  for (const auto& [key, gauges] : state_->states) {
    for (prometheus::Gauge* gauge : gauges) state_->families.model_state.Remove(gauge);
  }
  state_->states = std::move(kept);
}

void ServerMetrics::SetLoad(const std::vector<std::pair<const ModelMetrics*, int64_t>>& queued,
                            double saturation) {
  std::lock_guard lock(state_->mutex);
  for (const auto& [key, version] : state_->models) version.metrics->queue_depth_->Set(0);
  for (const auto& [metrics, requests] : queued) {
    metrics->queue_depth_->Increment(static_cast<double>(requests));
  }
  state_->saturation.Set(saturation);
}

void ServerMetrics::CountModelLoad(const std::string& model, bool succeeded) {
  const std::string result = succeeded ? "succeeded" : "failed";
  state_->families.model_loads.Add({{"model", model}, {"result", result}}).Increment();
}

void ServerMetrics::CountEviction(const std::string& model) {
  state_->families.model_evictions.Add({{"model", model}}).Increment();
}

void ServerMetrics::CountResponseCache(const std::string& model, const std::string& result) {
  state_->families.response_cache.Add({{"model", model}, {"result", result}}).Increment();
}

void ServerMetrics::CountSourceSync(bool succeeded) {
  state_->source_syncs.Add({{"result", succeeded ? "succeeded" : "failed"}}).Increment();
}

void ServerMetrics::CountSourceBytes(int64_t bytes) {
  state_->source_bytes.Increment(static_cast<double>(bytes));
}

void ServerMetrics::CountResponseCacheEviction() { state_->response_cache_evictions.Increment(); }

void ServerMetrics::SetResponseCacheBytes(int64_t bytes) {
  state_->response_cache_bytes.Set(static_cast<double>(bytes));
}

void ServerMetrics::CountPadding(const std::string& model, int64_t elements) {
  state_->families.padding.Add({{"model", model}}).Increment(static_cast<double>(elements));
}

void ServerMetrics::SetSequences(const std::string& model, int64_t count) {
  state_->families.sequences.Add({{"model", model}}).Set(static_cast<double>(count));
}

void ServerMetrics::CountRollback(const std::string& model, const std::string& reason) {
  state_->families.model_rollbacks.Add({{"model", model}, {"reason", reason}}).Increment();
}

void ServerMetrics::CountShadow(const std::string& model, const std::string& version,
                                const std::string& outcome) {
  state_->families.shadow_requests
      .Add({{"model", model}, {"version", version}, {"outcome", outcome}})
      .Increment();
}

void ServerMetrics::CountConfigReload(bool succeeded) {
  state_->config_reloads.Add({{"result", succeeded ? "succeeded" : "failed"}}).Increment();
}

void ServerMetrics::CountAccessRefusal(Protocol protocol, StatusCode code) {
  state_->access_refusals
      .Add({{"protocol", ProtocolName(protocol)}, {"code", std::string(StatusCodeName(code))}})
      .Increment();
}

void ServerMetrics::SetCache(int64_t damaged, int64_t stored, int64_t not_stored) {
  const auto set = [&](const char* event, int64_t count) {
    state_->cache_entries.Add({{"event", event}}).Set(static_cast<double>(count));
  };
  set("damaged", damaged);
  set("stored", stored);
  set("not_stored", not_stored);
}

void ServerMetrics::SetMemory(const std::shared_ptr<MemoryAccount>& memory) {
  std::lock_guard lock(state_->mutex);
  state_->whole = memory;
}

void ServerMetrics::ReadModels() const {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(state_->mutex);
  const auto unused = [&](const State::Version& version) {
    return version.metrics.use_count() == 1 && now - version.used >= state_->keep_unused;
  };
  for (auto& [key, version] : state_->models) {
    if (version.metrics.use_count() > 1) version.used = now;
    if (unused(version)) state_->Remove(*version.metrics);
  }
  std::erase_if(state_->models, [&](const auto& entry) { return unused(entry.second); });
  for (const auto& [key, version] : state_->models) {
    ModelMetrics& metrics = *version.metrics;
    metrics.ObserveMemory();
    metrics.in_flight_gauge_->Set(
        static_cast<double>(metrics.in_flight_.load(std::memory_order_relaxed)));
  }
  if (state_->whole == nullptr) return;
  state_->memory.Set(static_cast<double>(state_->whole->bytes()));
  state_->memory_limit.Set(static_cast<double>(state_->whole->limit()));
  const auto refusals = static_cast<double>(state_->whole->refusals());
  state_->memory_refusals.Increment(refusals - state_->memory_refusals.Value());
}

void ServerMetrics::ObserveParse(Protocol protocol, std::chrono::nanoseconds duration) {
  state_->parse[static_cast<size_t>(protocol)]->Observe(ModelMetrics::Seconds(duration).count());
}
void ServerMetrics::ObserveSerialize(Protocol protocol, std::chrono::nanoseconds duration) {
  state_->serialize[static_cast<size_t>(protocol)]->Observe(
      ModelMetrics::Seconds(duration).count());
}

void ServerMetrics::CountUnroutedRequest(Protocol protocol, StatusCode code) {
  state_->families.requests
      .Add({{"model", "unknown"},
            {"version", ""},
            {"protocol", ProtocolName(protocol)},
            {"code", std::string(StatusCodeName(code))}})
      .Increment();
}

void ServerMetrics::CountSpans(const std::string& result, int64_t count) {
  state_->spans.Add({{"result", result}}).Increment(static_cast<double>(count));
}
void ServerMetrics::CountShed(const std::string& reason) {
  state_->shed.Add({{"reason", reason}}).Increment();
}
void ServerMetrics::CountPreparedModel(const std::string& result) {
  state_->prepared_models.Add({{"result", result}}).Increment();
}
void ServerMetrics::ConnectionOpened(Protocol protocol) {
  state_->open[static_cast<size_t>(protocol)]->Increment();
  state_->opened[static_cast<size_t>(protocol)]->Increment();
}
void ServerMetrics::ConnectionClosed(Protocol protocol) {
  state_->open[static_cast<size_t>(protocol)]->Decrement();
}
void ServerMetrics::CountAcceptError() { state_->accept_errors.Increment(); }
void ServerMetrics::CountTlsFailure() { state_->tls_failures.Increment(); }
void ServerMetrics::CountTlsReload(bool succeeded) {
  state_->tls_reloads.Add({{"result", succeeded ? "succeeded" : "failed"}}).Increment();
}
void ServerMetrics::SetTlsExpiry(int64_t seconds_since_epoch) {
  state_->tls_expiry.Set(static_cast<double>(seconds_since_epoch));
}
void ServerMetrics::SetBufferedBytes(int64_t bytes) {
  state_->buffered_bytes.Set(static_cast<double>(bytes));
}
void ServerMetrics::SetDevices(const std::vector<DeviceState>& devices) {
  const auto set = [](prometheus::Family<prometheus::Gauge>& family,
                      const prometheus::Labels& labels, double value) {
    if (value >= 0) family.Add(labels).Set(value);
  };
  for (const DeviceState& device : devices) {
    const auto memory = [&](const char* kind, double bytes) {
      set(state_->device_memory, {{"device", device.device}, {"kind", kind}}, bytes);
    };
    memory("total", device.memory_bytes);
    memory("used", device.used_bytes);
    memory("kept", device.kept_bytes);
    memory("all_processes", device.total_bytes);
    set(state_->device_lost, {{"device", device.device}}, device.lost ? 1 : 0);
    set(state_->device_utilization, {{"device", device.device}}, device.utilization);
    set(state_->device_power, {{"device", device.device}}, device.power_watts);
  }
}

void ServerMetrics::SetReady(bool ready) { state_->ready.Set(ready ? 1 : 0); }

std::string ServerMetrics::Serialize() const {
  ReadModels();
  {
    std::lock_guard lock(state_->mutex);
    state_->process.Read();
  }
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace onnxd
