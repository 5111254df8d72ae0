// Every metric that onnxd exports, in one place. Names begin with onnxd_; units are seconds and
// bytes. Label values come from the registry of models, never from requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

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
// Lives as long as its ServerMetrics. Any thread.
class ModelMetrics {
 public:
  using Seconds = std::chrono::duration<double>;
  // `duration`: from its last byte to its answer.
  void ObserveRequest(Protocol protocol, StatusCode code, std::chrono::nanoseconds duration);
  void ObserveQueue(std::chrono::nanoseconds duration);
  void CountNonFinite(int64_t numbers);  // NaN and infinities that went into JSON
  // One run of `rows` rows for so many requests.
  void ObserveRun(int64_t rows, int64_t requests, const RunTimes& times);
  const ModelStatistics& statistics() const { return statistics_; }
  void SetLoadDuration(Seconds duration);
  // Its bytes are read when metrics are; none once it is gone.
  void SetMemory(const std::shared_ptr<MemoryAccount>& memory);

 private:
  friend class ServerMetrics;
  struct Families;
  Families* families_ = nullptr;
  std::string model_, version_;
  prometheus::Histogram* request_[2] = {};
  prometheus::Histogram* queue_ = nullptr;
  prometheus::Histogram* compute_[3] = {};  // input, run, output
  prometheus::Histogram* batch_size_ = nullptr;
  prometheus::Counter* success_[2] = {};
  prometheus::Counter* non_finite_ = nullptr;
  prometheus::Gauge* load_duration_ = nullptr;
  prometheus::Gauge* memory_bytes_ = nullptr;
  std::mutex* mutex_ = nullptr;
  std::weak_ptr<MemoryAccount> memory_;  // guarded by *mutex_
  ModelStatistics statistics_;
};

// Any thread.
class ServerMetrics {
 public:
  ServerMetrics();
  ~ServerMetrics();

  // The handle for a version; the same one for the same names.
  ModelMetrics& ForModel(const std::string& model, const std::string& version);

  void SetModelState(const std::string& model, const std::string& version, bool ready);
  // From the last byte of a request to its being checked; from the end of its run to its answer.
  void ObserveParse(Protocol protocol, std::chrono::nanoseconds duration);
  void ObserveSerialize(Protocol protocol, std::chrono::nanoseconds duration);
  void CountUnroutedRequest(Protocol protocol, StatusCode code);  // no model was found
  void CountShed(const std::string& reason);  // queue_full, deadline, memory, client
  void CountModelLoad(const std::string& model, bool succeeded);
  void CountPreparedModel(const std::string& result);  // found, missing
  void CountEviction(const std::string& model);
  void CountConfigReload(bool succeeded);
  void CountAccessRefusal(Protocol protocol, StatusCode code);
  // Of the cache of prepared models: entries found damaged, stored, and not stored for an error.
  void SetCache(int64_t damaged, int64_t stored, int64_t not_stored);
  // The account of the whole process.
  void SetMemory(const std::shared_ptr<MemoryAccount>& memory);
  void ConnectionOpened(Protocol protocol);
  void ConnectionClosed(Protocol protocol);
  void CountAcceptError();
  void CountTlsFailure();  // a handshake that did not end well
  void CountTlsReload(bool succeeded);
  void SetTlsExpiry(std::int64_t seconds_since_epoch);
  void SetQueueDepth(int64_t requests);
  void SetInFlight(int64_t requests);
  void SetBufferedBytes(int64_t bytes);
  void SetReady(bool ready);

  // The text exposition format, process metrics included.
  std::string Serialize() const;

 private:
  void ReadMemory() const;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onnxd
