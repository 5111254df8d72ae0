// ShadowTraffic: copies of requests that another version of the model computes, too, after their
// answers were given and where a processor has nothing else to do, to compare what comes out. Even
// so a run takes caches and memory bandwidth from its neighbours: while there are requests, runs
// take 1 in 250 parts of the time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/metrics/server_metrics.h"
#include "server/models/model_version.h"

namespace onnxd {

// Any thread.
class ShadowTraffic {
 public:
  // What the server's other requests are at.
  struct Activity {
    int64_t begun = 0;  // since the start
    int64_t in_flight = 0;
  };
  ShadowTraffic(ServerMetrics& metrics, std::function<Activity()> activity)
      : metrics_(metrics), activity_(std::move(activity)) {}
  // Drops what waits.
  ~ShadowTraffic();
  ShadowTraffic(const ShadowTraffic&) = delete;
  ShadowTraffic& operator=(const ShadowTraffic&) = delete;

  struct Copy {
    std::shared_ptr<const ModelVersion> answering, shadow;
    std::vector<Value> inputs, outputs;  // of the answering version, in its order
    double tolerance = 0;                // |a - b| <= tolerance * (1 + |b|)
    std::string request_id;
  };
  // Never waits: dropped, and counted so, when over 256 copies or 64 MB wait.
  void Offer(Copy copy);

  // What differed of late.
  struct Example {
    std::string request_id, version, shadow_version, difference;
  };
  static constexpr size_t kMostExamples = 8;
  std::vector<Example> Examples(const std::string& model) const;

 private:
  void Work();
  std::optional<Copy> Next();
  void Compare(const Copy& copy);
  void Rest(std::chrono::nanoseconds time);

  ServerMetrics& metrics_;
  const std::function<Activity()> activity_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Copy> waiting_;                             // guarded by mutex_
  size_t bytes_ = 0;                                     // of them; guarded by mutex_
  std::map<std::string, std::deque<Example>> examples_;  // by model; guarded by mutex_
  std::thread thread_;                                   // begins with the first copy
};

}  // namespace onnxd
