// SpanExporter: hands spans to a collector, in batches, from a thread of its own.
// Source: https://opentelemetry.io/docs/specs/otel/trace/sdk/#batching-processor and
// https://opentelemetry.io/docs/specs/otlp/#failures-1
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "server/metrics/server_metrics.h"
#include "server/tracing/span.h"

namespace onnxd {

// Any thread. What a slow collector cannot take is dropped and counted; requests never wait for it.
class SpanExporter {
 public:
  struct Options {
    size_t queue = 2048;                    // spans; more are dropped
    size_t batch = 512;                     // of one message
    std::chrono::milliseconds delay{1000};  // until a message goes that is not full
    std::chrono::milliseconds retry{1000};  // after a failure, twice as long after the next
    int tries = 4;                          // of one message
  };
  // Posts an ExportTraceServiceRequest in JSON to the collector: its HTTP status, or why there is
  // none. 429, 502, 503, 504 and no answer are tried again.
  using Send = std::function<Result<int>(const std::string& body)>;

  // `metrics` must outlive it.
  SpanExporter(const Options& options, std::map<std::string, std::string> resource, Send send,
               ServerMetrics& metrics);
  // Sends what is left, once.
  ~SpanExporter();

  void Add(Span span);

 private:
  void Work();
  // Tries until it is taken, refused, or given up.
  void SendBatch(const std::vector<Span>& batch);
  // Waits; false: it ends.
  bool Pause(std::chrono::milliseconds time);
  void Report(const Status& sent);

  const Options options_;
  const std::map<std::string, std::string> resource_;
  const Send send_;
  ServerMetrics& metrics_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Span> queue_;  // guarded by mutex_
  bool stopping_ = false;   // guarded by mutex_
  bool failing_ = false;    // of the thread
  std::thread thread_;
};

}  // namespace onnxd
