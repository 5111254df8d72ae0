// ModelStatistics: what Triton's statistics extension tells of a model version, as sums since the
// daemon's start.
// Source: https://github.com/triton-inference-server/server, docs/protocol/extension_statistics.md
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>

namespace onnxd {

// The times of one run of a model.
struct RunTimes {
  std::chrono::nanoseconds input{0};   // joining the rows of its requests
  std::chrono::nanoseconds run{0};     // the model
  std::chrono::nanoseconds output{0};  // parting the rows again
};

// Any thread.
class ModelStatistics {
 public:
  struct Duration {
    uint64_t count = 0;
    uint64_t nanoseconds = 0;
    void Add(std::chrono::nanoseconds time, uint64_t times = 1) {
      count += times;
      nanoseconds += times * static_cast<uint64_t>(time.count());
    }
  };
  struct Run {
    Duration input, run, output;
  };
  struct Totals {
    int64_t last_inference_ms = 0;  // of the wall clock, since the epoch; 0: never
    uint64_t inferences = 0;        // rows
    uint64_t executions = 0;        // runs
    Duration success, failure, queue;
    Run requests;                    // each request counts its run's whole time
    std::map<int64_t, Run> batches;  // by rows; each run counts once
  };

  void CountAnswer(bool success, std::chrono::nanoseconds whole);
  void CountQueue(std::chrono::nanoseconds waited);
  void CountRun(int64_t rows, int64_t requests, const RunTimes& times);
  Totals totals() const;

 private:
  mutable std::mutex mutex_;
  Totals totals_;  // guarded by mutex_
};

}  // namespace onnxd
