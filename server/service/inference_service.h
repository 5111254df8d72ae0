// InferenceService: each verb of the APIs once, for all frontends.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/batching/scheduler.h"
#include "server/inference/inference_request.h"
#include "server/inference/json_writer.h"
#include "server/inference/shared_memory.h"
#include "server/metrics/request_log.h"
#include "server/models/model_manager.h"
#include "server/service/client_quota.h"
#include "server/service/load_meter.h"
#include "server/service/rate_limiter.h"
#include "server/service/response_cache.h"
#include "server/service/sequences.h"
#include "server/service/shadow_traffic.h"
#include "server/tracing/tracer.h"

namespace onnxd {

struct ModelMetadata {
  std::string name;
  std::vector<std::string> versions;
  std::vector<TensorMetadata> inputs, outputs;
  bool writes_texts = false;
};

// Any thread.
class InferenceService {
 public:
  InferenceService(const ModelRegistry& registry, ModelManager& manager, Scheduler& scheduler,
                   ServerMetrics& metrics, std::shared_ptr<MemoryAccount> memory, Tracer& tracer,
                   const ServerOptions& options);

  // From now on, of keys that change while serving.
  void Reconfigure(const ServerOptions& options);

  // Never waits for a model or a lock.
  bool Live() const { return true; }
  // The first load is over, at least one model answered then unless they are loaded by request, all
  // required ones do, and no drain has begun.
  bool Ready() const;
  bool ModelReady(const std::string& model, const std::string& version) const;

  // Whether a client may be told of a model of that name.
  using IsKnown = std::function<bool(const std::string& name)>;
  // The model a request means: `model` if given, else the default, else the only one. The failure
  // (kInvalidArgument) names the known models and one URL that works. `version`: its number or
  // label; empty: what the model's split has for the request at `point`, else the newest.
  Result<std::shared_ptr<const ModelVersion>> FindModel(const std::string& model,
                                                        const std::string& version, uint64_t point,
                                                        const IsKnown& known) const;
  Result<ModelMetadata> Metadata(const std::string& model, const std::string& version) const;
  // Those that serve; an empty version: all of the model, an empty model, too: all.
  Result<std::vector<std::shared_ptr<const ModelVersion>>> Versions(
      const std::string& model, const std::string& version) const;
  // What holds for the model's requests.
  struct ModelConfig {
    std::shared_ptr<const ModelVersion> version;
    BatchSettings batching;
  };
  Result<ModelConfig> Config(const std::string& model, const std::string& version) const;
  std::vector<std::string> ModelNames() const;

  std::vector<ModelRegistry::Entry> Index() const { return registry_.Index(); }
  // As ModelManager::Control.
  void Control(ModelManager::Command command, ModelManager::Done done) {
    manager_.Control(std::move(command), std::move(done));
  }

  // As of ModelManager.
  void RollBack(const std::string& model, const std::string& version, ModelManager::Done done) {
    manager_.RollBack(model, version, std::move(done));
  }
  void Release(const std::string& model, const std::string& version, ModelManager::Done done) {
    manager_.Release(model, version, std::move(done));
  }

  // As ModelManager::ChangeRollout.
  void ChangeRollout(const std::string& model, RolloutChange change,
                     ModelManager::RolloutChanged done) {
    manager_.ChangeRollout(model, std::move(change), std::move(done));
  }
  // Of a model that serves: its labels and shares, what of them was changed by request, what was
  // rolled back, what a shadow version answered otherwise, and whether the changes outlast a
  // restart. Errors as of FindModel.
  struct Rollout {
    RolloutSettings now;
    RolloutOverlay changed;
    std::vector<QuarantineEntry> rolled_back;
    std::vector<ShadowTraffic::Example> differences;  // of the shadow version's answers, of late
    bool persistent;
  };
  Result<Rollout> RolloutOf(const std::string& model) const;

  // As Daemon::Reload, soon: what changed, "section.key", or kInvalidArgument, kNotFound (the
  // file), kFailedPrecondition (keys that need a restart).
  using Reloaded = std::function<void(const Result<std::vector<std::string>>&)>;
  void Reload(Reloaded done);
  // `request` is called for each; somebody answers them. Before the first request.
  void SetReload(std::function<void()> request) { request_reload_ = std::move(request); }
  void AnswerReloads(const Result<std::vector<std::string>>& result);

  // Checks the request against the model's signature and queues it; `done` is called once, at once
  // when the request is refused. Failures: kInvalidArgument, kNotFound, kUnavailable (queue full or
  // draining), kDeadlineExceeded, kCancelled, kResourceExhausted.
  void Infer(std::shared_ptr<const ModelVersion> version, InferenceRequest&& request,
             Protocol protocol, InferenceCallback done);

  // For load balancers.
  LoadReport Load() { return load_meter_.Report(std::chrono::steady_clock::now()); }

  // One for the version does not fit its inputs, as far as could be seen before Infer.
  static void NoteRefusal(const ModelVersion& version);
  // A request for inference that failed before its model was known.
  void NoteUnrouted(Protocol protocol, const Status& status, const RequestOrigin& origin);
  const RequestLog& request_log() const { return request_log_; }
  Tracer& tracer() const { return tracer_; }

  // For each inference request, by its client's address, until the ticket is gone.
  // kResourceExhausted when the client has too many, or the model or key too many a second.
  Result<ClientQuota::Ticket> EnterClient(const ModelVersion& version, const RequestOrigin& origin);

  // Memory of request bodies in flight, against one budget. False: refuse with kUnavailable.
  bool AdmitBytes(int64_t bytes);
  void ReleaseBytes(int64_t bytes);

  // From now on Ready() is false; requests are still answered.
  void BeginDrain() { draining_.store(true, std::memory_order_relaxed); }
  int64_t in_flight() const { return in_flight_.load(std::memory_order_acquire); }

  ServerMetrics& metrics() const { return metrics_; }
  // All metrics as of now, in Prometheus's text exposition format.
  std::string Metrics() const;
  // What JSON may be, and how answers are written in it.
  struct Json {
    int64_t max_depth = 64;
    NonFinite non_finite = NonFinite::kNull;
  };
  const Json& json() const { return json_; }
  SharedMemory& shared_memory() { return shared_memory_; }

 private:
  class InFlight;
  // Who asks, in all that comes of one request.
  struct Asker {
    std::shared_ptr<std::atomic<bool>> cancelled;  // may be null
    // Of an ensemble's: for its steps.
    std::string request_id;
    uint64_t point = 0;  // RoutePoint
    std::optional<std::chrono::steady_clock::time_point> deadline;
    std::shared_ptr<const ModelSteps> steps = nullptr;  // null: it asks one model
  };
  // A request that fits its model.
  struct Checked {
    std::vector<size_t> selected;  // outputs
    std::string id;
    SequenceControl sequence;
    Asker asker;
    BatchRequest request;
    std::shared_ptr<ShadowTraffic::Copy> copy;  // null: none
    std::shared_ptr<Sequences::Turn> turn;      // null: it belongs to no sequence
    // Of its texts, where it has some.
    Tensor text_mask = {};
    std::chrono::nanoseconds texts_waited{0}, texts_took{0};
    GenerationOptions generation = {};
  };
  using Version = std::shared_ptr<const ModelVersion>;

  std::shared_ptr<ShadowTraffic::Copy> CopyFor(const Version& version,
                                               const std::string& request_id) const;
  // The way of a request, each step to one of those behind it.
  void Answer(Version version, InferenceRequest&& request, Asker asker,
              std::shared_ptr<ShadowTraffic::Copy> copy, InferenceCallback finish);
  void AnswerFromCache(Version version, Checked checked, InferenceCallback finish);
  void Compute(Version version, Checked checked, InferenceCallback finish);
  std::shared_ptr<const ModelSteps> StepsOf(const Ensemble& ensemble, const Asker& asker) const;
  void RunSteps(Version version, Checked checked, InferenceCallback finish);
  void TakeTurn(Version version, Checked checked, InferenceCallback finish);
  void BringToMemory(Version version, Checked checked, InferenceCallback finish);
  void Tokenize(Version version, Checked checked, InferenceCallback finish);
  void WriteTexts(Version version, Checked checked, InferenceCallback finish);
  void Submit(Version version, Checked checked, InferenceCallback finish);
  std::string default_model() const;
  void CountAnswer(const Status& status);
  LoadMeter::Reading ReadLoad();

  const ModelRegistry& registry_;
  ModelManager& manager_;
  Scheduler& scheduler_;
  ServerMetrics& metrics_;
  const std::shared_ptr<MemoryAccount> memory_;
  Tracer& tracer_;
  mutable std::mutex mutex_;
  std::string default_model_;      // guarded by mutex_
  std::vector<Reloaded> reloads_;  // guarded by mutex_
  std::function<void()> request_reload_ = [] {};
  std::atomic<int64_t> max_buffered_bytes_{0};
  Json json_;
  ClientQuota quota_;
  RateLimiter rate_limiter_;
  ResponseCache response_cache_;
  Sequences sequences_;
  RequestLog request_log_;
  SharedMemory shared_memory_;
  std::atomic<bool> draining_{false};
  mutable std::atomic<bool> was_ready_{false};
  std::atomic<int64_t> in_flight_{0};
  std::atomic<int64_t> buffered_bytes_{0};
  std::atomic<int64_t> answered_{0}, failed_{0};  // inference requests
  LoadMeter load_meter_;
  ShadowTraffic shadow_traffic_;
};

}  // namespace onnxd
