#include "server/metrics/server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <mutex>

#include "runtime/base/file.h"

namespace onnxd {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05,    0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};

const prometheus::Histogram::BucketBoundaries kRows = {1, 2, 4, 8, 16, 32, 64, 128, 256};

const char* ProtocolName(Protocol protocol) {
  return protocol == Protocol::kHttp ? "http" : "grpc";
}

double ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long total = 0, resident = 0;
  const int got = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  return got == 2 ? static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
}

double OpenDescriptors() {
  const auto names = ListFolder("/proc/self/fd", 1 << 20);
  return names.ok() ? static_cast<double>(names->size() - 1) : 0;  // one is this look's own
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

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
        model_memory(BuildGauge()
                         .Name("onnxd_model_memory_bytes")
                         .Help("Weights, packed copies and memory of runs of a model version")
                         .Register(registry)),
        model_evictions(BuildCounter()
                            .Name("onnxd_model_evictions_total")
                            .Help("Times a model left the memory to others")
                            .Register(registry)),
        model_loads(BuildCounter()
                        .Name("onnxd_model_loads_total")
                        .Help("Loads of versions of a model, by result: succeeded or failed")
                        .Register(registry)),
        model_ready(BuildGauge()
                        .Name("onnxd_model_ready")
                        .Help("1 while a model version can answer")
                        .Register(registry)) {}

  prometheus::Family<prometheus::Counter>& requests;
  prometheus::Family<prometheus::Histogram>& request_duration;
  prometheus::Family<prometheus::Histogram>& queue_duration;
  prometheus::Family<prometheus::Histogram>& compute_duration;
  prometheus::Family<prometheus::Histogram>& batch_size;
  prometheus::Family<prometheus::Counter>& non_finite;
  prometheus::Family<prometheus::Gauge>& load_duration;
  prometheus::Family<prometheus::Gauge>& model_memory;
  prometheus::Family<prometheus::Counter>& model_evictions;
  prometheus::Family<prometheus::Counter>& model_loads;
  prometheus::Family<prometheus::Gauge>& model_ready;
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
        queue_depth(BuildGauge()
                        .Name("onnxd_queue_depth")
                        .Help("Requests waiting for an executor")
                        .Register(registry)
                        .Add({})),
        in_flight(BuildGauge()
                      .Name("onnxd_inflight_requests")
                      .Help("Requests accepted and not yet answered")
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
        cpu(BuildCounter()
                .Name("process_cpu_seconds_total")
                .Help("Processor time used")
                .Register(registry)
                .Add({})),
        resident(BuildGauge()
                     .Name("process_resident_memory_bytes")
                     .Help("Resident memory")
                     .Register(registry)
                     .Add({})),
        descriptors(BuildGauge()
                        .Name("process_open_fds")
                        .Help("Open file descriptors")
                        .Register(registry)
                        .Add({})) {
    build_info.Set(1);
    for (const char* reason : {"queue_full", "deadline", "memory", "client", "drain"}) {
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
  prometheus::Gauge& queue_depth;
  prometheus::Gauge& in_flight;
  prometheus::Gauge& buffered_bytes;
  prometheus::Counter& accept_errors;
  prometheus::Counter& tls_failures;
  prometheus::Family<prometheus::Counter>& tls_reloads;
  prometheus::Gauge& tls_expiry;
  prometheus::Family<prometheus::Gauge>& connections;
  prometheus::Family<prometheus::Counter>& connections_total;
  prometheus::Family<prometheus::Counter>& shed;
  prometheus::Family<prometheus::Counter>& prepared_models;
  prometheus::Family<prometheus::Counter>& config_reloads;
  prometheus::Family<prometheus::Counter>& access_refusals;
  prometheus::Family<prometheus::Gauge>& cache_entries;
  prometheus::Family<prometheus::Histogram>& parse_duration;
  prometheus::Family<prometheus::Histogram>& serialize_duration;
  prometheus::Gauge& memory;
  prometheus::Gauge& memory_limit;
  prometheus::Counter& memory_refusals;
  prometheus::Counter& cpu;
  prometheus::Gauge& resident;
  prometheus::Gauge& descriptors;
  prometheus::Gauge* open[2];
  prometheus::Counter* opened[2];
  prometheus::Histogram* parse[2];
  prometheus::Histogram* serialize[2];
  std::mutex mutex;
  std::shared_ptr<MemoryAccount> whole;  // guarded by mutex
  std::map<std::pair<std::string, std::string>, std::unique_ptr<ModelMetrics>> models;
};

void ModelMetrics::ObserveRequest(Protocol protocol, StatusCode code,
                                  std::chrono::nanoseconds duration) {
  request_[static_cast<size_t>(protocol)]->Observe(Seconds(duration).count());
  statistics_.CountAnswer(code == StatusCode::kOk, duration);
  if (code == StatusCode::kOk) {
    success_[static_cast<size_t>(protocol)]->Increment();
    return;
  }
  families_->requests
      .Add({{"model", model_},
            {"version", version_},
            {"protocol", ProtocolName(protocol)},
            {"code", std::string(StatusCodeName(code))}})
      .Increment();
}

void ModelMetrics::ObserveQueue(std::chrono::nanoseconds duration) {
  queue_->Observe(Seconds(duration).count());
  statistics_.CountQueue(duration);
}

void ModelMetrics::ObserveRun(int64_t rows, int64_t requests, const RunTimes& times) {
  batch_size_->Observe(static_cast<double>(rows));
  const std::chrono::nanoseconds phases[] = {times.input, times.run, times.output};
  for (size_t i = 0; i < std::size(phases); ++i) compute_[i]->Observe(Seconds(phases[i]).count());
  statistics_.CountRun(rows, requests, times);
}

void ModelMetrics::CountNonFinite(int64_t numbers) {
  if (numbers > 0) non_finite_->Increment(static_cast<double>(numbers));
}

void ModelMetrics::SetMemory(const std::shared_ptr<MemoryAccount>& memory) {
  std::lock_guard lock(*mutex_);
  memory_ = memory;
}
void ModelMetrics::SetLoadDuration(Seconds duration) { load_duration_->Set(duration.count()); }

ServerMetrics::ServerMetrics() : state_(std::make_unique<State>()) {}
ServerMetrics::~ServerMetrics() = default;

ModelMetrics& ServerMetrics::ForModel(const std::string& model, const std::string& version) {
  std::lock_guard lock(state_->mutex);
  auto& slot = state_->models[{model, version}];
  if (slot == nullptr) {
    slot = std::make_unique<ModelMetrics>();
    ModelMetrics::Families& families = state_->families;
    const prometheus::Labels labels = {{"model", model}, {"version", version}};
    slot->families_ = &families;
    slot->model_ = model;
    slot->version_ = version;
    slot->queue_ = &families.queue_duration.Add(labels, kSeconds);
    constexpr const char* kPhases[] = {"input", "run", "output"};
    for (size_t i = 0; i < std::size(kPhases); ++i) {
      prometheus::Labels with_phase = labels;
      with_phase["phase"] = kPhases[i];
      slot->compute_[i] = &families.compute_duration.Add(with_phase, kSeconds);
    }
    slot->batch_size_ = &families.batch_size.Add(labels, kRows);
    slot->non_finite_ = &families.non_finite.Add(labels);
    slot->load_duration_ = &families.load_duration.Add(labels);
    slot->memory_bytes_ = &families.model_memory.Add(labels);
    slot->mutex_ = &state_->mutex;
    for (const Protocol protocol : {Protocol::kHttp, Protocol::kGrpc}) {
      prometheus::Labels with_protocol = labels;
      with_protocol["protocol"] = ProtocolName(protocol);
      const auto index = static_cast<size_t>(protocol);
      slot->request_[index] = &families.request_duration.Add(with_protocol, kSeconds);
      with_protocol["code"] = "OK";
      slot->success_[index] = &families.requests.Add(with_protocol);
    }
  }
  return *slot;
}

void ServerMetrics::SetModelState(const std::string& model, const std::string& version,
                                  bool ready) {
  state_->families.model_ready.Add({{"model", model}, {"version", version}}).Set(ready ? 1 : 0);
}

void ServerMetrics::CountModelLoad(const std::string& model, bool succeeded) {
  const std::string result = succeeded ? "succeeded" : "failed";
  state_->families.model_loads.Add({{"model", model}, {"result", result}}).Increment();
}

void ServerMetrics::CountEviction(const std::string& model) {
  state_->families.model_evictions.Add({{"model", model}}).Increment();
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

void ServerMetrics::ReadMemory() const {
  std::lock_guard lock(state_->mutex);
  for (const auto& [key, model] : state_->models) {
    const auto memory = model->memory_.lock();
    model->memory_bytes_->Set(memory == nullptr ? 0 : static_cast<double>(memory->bytes()));
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
void ServerMetrics::SetQueueDepth(int64_t requests) {
  state_->queue_depth.Set(static_cast<double>(requests));
}
void ServerMetrics::SetInFlight(int64_t requests) {
  state_->in_flight.Set(static_cast<double>(requests));
}
void ServerMetrics::SetBufferedBytes(int64_t bytes) {
  state_->buffered_bytes.Set(static_cast<double>(bytes));
}
void ServerMetrics::SetReady(bool ready) { state_->ready.Set(ready ? 1 : 0); }

std::string ServerMetrics::Serialize() const {
  const double used = CpuSeconds() - state_->cpu.Value();
  if (used > 0) state_->cpu.Increment(used);
  ReadMemory();
  state_->resident.Set(ResidentBytes());
  state_->descriptors.Set(OpenDescriptors());
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace onnxd
