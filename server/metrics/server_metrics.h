// Every metric that onnxd exports, in one place. Names begin with onnxd_, those of the process have
// the names of Prometheus's client libraries; units are seconds and bytes. Label values come from
// the registry of models, never from requests.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/memory_account.h"
#include "runtime/base/status.h"
#include "server/metrics/model_statistics.h"

namespace prometheus {
class Registry;
class Counter;
class Gauge;
class Histogram;
template <typename T>
class Family;
}  // namespace prometheus

namespace onnxd {

enum class Protocol { kHttp, kGrpc };

// The metrics of one model version; a handle per series, so that an observation looks nothing up.
// Must not be used once its ServerMetrics is gone. Any thread.
class ModelMetrics {
 public:
  using Seconds = std::chrono::duration<double>;
  // `duration`: from its last byte to its answer.
  void ObserveRequest(Protocol protocol, StatusCode code, std::chrono::nanoseconds duration);
  void ObserveQueue(std::chrono::nanoseconds duration);
  void CountNonFinite(int64_t numbers);  // NaN and infinities that went into JSON
  // How long one run's first request waited for others to join although an executor was idle.
  void ObserveBatchWait(std::chrono::nanoseconds duration);
  // One run of `rows` rows, of at most `most`, for so many requests.
  void ObserveRun(int64_t rows, int64_t most, int64_t requests, const RunTimes& times);
  // Of a version that writes texts, before the first of the three below.
  void AddGeneration();
  // `first`: since its request came; else since the token before.
  void ObserveToken(bool first, std::chrono::nanoseconds duration);
  void CountTokens(int64_t prompt, int64_t generated);  // of a request that has its answer
  void SetSequences(int64_t writing, int64_t waiting);
  // A request was accepted; it has its answer.
  void Began() { in_flight_.fetch_add(1, std::memory_order_relaxed); }
  void Ended() { in_flight_.fetch_sub(1, std::memory_order_relaxed); }
  const ModelStatistics& statistics() const { return statistics_; }
  // Of a load that ends now.
  void SetLoadDuration(Seconds duration);
  // Its bytes are read when metrics are; none once it is gone. `weights`: of these, what the load
  // left there.
  void SetMemory(const std::shared_ptr<MemoryAccount>& memory, int64_t weights);

 private:
  friend class ServerMetrics;
  void ObserveMemory();  // with *mutex_ held
  struct Families;
  Families* families_ = nullptr;
  std::string model_, version_;
  prometheus::Histogram* request_[2] = {};
  prometheus::Histogram* queue_ = nullptr;
  prometheus::Histogram* compute_[3] = {};  // input, run, output
  prometheus::Histogram* batch_wait_ = nullptr;
  prometheus::Histogram* batch_size_ = nullptr;
  prometheus::Histogram* batch_fill_ = nullptr;
  prometheus::Counter* busy_ = nullptr;
  prometheus::Counter* success_[2] = {};
  // Guarded by *mutex_.
  std::map<std::pair<Protocol, StatusCode>, prometheus::Counter*> failures_;
  prometheus::Counter* non_finite_ = nullptr;
  prometheus::Histogram* first_token_ = nullptr;
  prometheus::Histogram* next_token_ = nullptr;
  prometheus::Counter* tokens_[2] = {};    // prompt, generated
  prometheus::Gauge* generating_[2] = {};  // writing, waiting
  prometheus::Gauge* load_duration_ = nullptr;
  prometheus::Gauge* last_load_ = nullptr;
  prometheus::Gauge* queue_depth_ = nullptr;
  prometheus::Gauge* in_flight_gauge_ = nullptr;
  std::atomic<int64_t> in_flight_{0};
  prometheus::Gauge* weights_bytes_ = nullptr;
  prometheus::Gauge* arena_bytes_ = nullptr;
  std::mutex* mutex_ = nullptr;
  std::weak_ptr<MemoryAccount> memory_;  // guarded by *mutex_
  int64_t weights_ = 0;                  // bytes of it; guarded by *mutex_
  ModelStatistics statistics_;
};

// Any thread.
class ServerMetrics {
 public:
  // Series of a version that nobody holds stay for as long.
  explicit ServerMetrics(std::chrono::seconds keep_unused = std::chrono::minutes(5));
  ~ServerMetrics();

  // The handle for a version; the same one for the same names. Beyond 2,000 versions the others
  // share one, both of whose names are "other". `duration_buckets_us`: upper bounds of its
  // histograms of durations, ascending, of a version without series; empty: from 50 us to 30 s.
  std::shared_ptr<ModelMetrics> ForModel(const std::string& model, const std::string& version,
                                         const std::vector<int64_t>& duration_buckets_us = {});

  // Of the versions that are known; those that are not named any more lose their series.
  struct VersionState {
    std::string model, version;
    size_t state;  // of kModelStates
  };
  static constexpr std::array<std::string_view, 3> kModelStates = {"loading", "ready",
                                                                   "unavailable"};
  void SetModelStates(const std::vector<VersionState>& states);
  // From the last byte of a request to its being checked; from the end of its run to its answer.
  void ObserveParse(Protocol protocol, std::chrono::nanoseconds duration);
  void ObserveSerialize(Protocol protocol, std::chrono::nanoseconds duration);
  void CountUnroutedRequest(Protocol protocol, StatusCode code);  // no model was found
  void CountSpans(const std::string& result, int64_t count);      // sent, dropped, failed
  void CountShed(const std::string& reason);  // queue_full, deadline, memory, client, rate, drain
  void CountModelLoad(const std::string& model, bool succeeded);
  void CountPreparedModel(const std::string& result);  // found, missing
  void CountEviction(const std::string& model);
  void CountShadow(const std::string& model, const std::string& version,
                   const std::string& outcome);
  void CountResponseCache(const std::string& model,
                          const std::string& result);  // hit, miss, joined
  void CountResponseCacheEviction();
  void SetResponseCacheBytes(int64_t bytes);
  void CountPadding(const std::string& model, int64_t elements);
  void SetSequences(const std::string& model, int64_t count);
  void CountSourceSync(bool succeeded);
  void CountSourceBytes(int64_t bytes);  // that were downloaded
  void CountRollback(const std::string& model, const std::string& reason);
  void CountConfigReload(bool succeeded);
  void CountAccessRefusal(Protocol protocol, StatusCode code);
  // Of the cache of prepared models: entries found damaged, stored, and not stored for an error.
  void SetCache(int64_t damaged, int64_t stored, int64_t not_stored);
  // Of devices that models use; a value below 0 is not known.
  struct DeviceState {
    std::string device;  // "cuda:0"
    bool lost = false;
    double memory_bytes = -1, used_bytes = -1, kept_bytes = -1, total_bytes = -1;
    double utilization = -1, power_watts = -1;
  };
  void SetDevices(const std::vector<DeviceState>& devices);
  // The account of the whole process.
  void SetMemory(const std::shared_ptr<MemoryAccount>& memory);
  void ConnectionOpened(Protocol protocol);
  void ConnectionClosed(Protocol protocol);
  void CountAcceptError();
  void CountTlsFailure();  // a handshake that did not end well
  void CountTlsReload(bool succeeded);
  void SetTlsExpiry(std::int64_t seconds_since_epoch);
  // Requests that wait for an executor; none of the versions that are not named. `saturation`:
  // executors at work, a mean of about 10 s, and seconds of work that wait, by executors.
  void SetLoad(const std::vector<std::pair<const ModelMetrics*, int64_t>>& queued,
               double saturation);
  void SetBufferedBytes(int64_t bytes);
  void SetReady(bool ready);

  // The text exposition format, process metrics included.
  std::string Serialize() const;

 private:
  void ReadModels() const;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onnxd
