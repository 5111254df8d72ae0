// RequestLog: which requests failed, which were slow, and where their time went.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/metrics/server_metrics.h"

namespace onnxd {

struct RequestRecord {
  using Duration = std::chrono::nanoseconds;
  std::string id;        // of the client, or made up
  std::string client;    // its address
  std::string trace_id;  // of W3C Trace Context; empty: none
  std::string model, version;
  Protocol protocol = Protocol::kHttp;
  StatusCode code = StatusCode::kOk;
  std::string error;  // empty: success
  // From its first byte to its answer being ready; of that: until it was parsed, waiting for an
  // executor, and the run.
  Duration whole{0}, read{0}, queue{0}, compute{0};
  std::chrono::system_clock::time_point ended{};
};

// Any thread.
class RequestLog {
 public:
  // Which requests get a line: none, those that failed and the slowest 1% of each model, all.
  enum class Lines { kNone, kNotable, kAll };
  struct Options {
    int64_t lines_per_second = 100;  // and no more; what is left out is counted
    size_t kept = 64;                // slowest and failed ones, for Slowest and Failed
    std::chrono::seconds keep{600};
  };

  RequestLog() : RequestLog(Options()) {}
  explicit RequestLog(const Options& options) : options_(options) {}

  void SetLines(Lines lines) { lines_wanted_.store(lines, std::memory_order_relaxed); }
  // Its `ended` is now.
  void Note(const RequestRecord& record);

  // Of the last `keep`, the slowest first.
  std::vector<RequestRecord> Slowest() const;
  // Of the last `keep`, the newest first.
  std::vector<RequestRecord> Failed() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    Clock::time_point at;
    RequestRecord record;
  };
  // Of one model: about the 99th percentile of its durations, learned as they come.
  struct Pace {
    double seconds = 0;
    int64_t count = 0;
  };

  // With mutex_ held.
  bool IsSlow(const RequestRecord& record);
  bool MayWriteLine(Clock::time_point now);
  void Keep(const RequestRecord& record, Clock::time_point now);

  const Options options_;
  std::atomic<Lines> lines_wanted_{Lines::kNotable};
  mutable std::mutex mutex_;
  std::map<std::string, Pace> paces_;              // by model; guarded by mutex_
  std::vector<Kept> slowest_;                      // a heap, its fastest first; guarded by mutex_
  std::deque<Kept> failed_;                        // the newest first; guarded by mutex_
  int64_t second_ = 0, lines_ = 0, left_out_ = 0;  // guarded by mutex_
};

// To the microsecond.
double Milliseconds(RequestRecord::Duration duration);

// One line: "POST model 'm' version '1': OK in 12.3 ms (read 0.1, queue 2.0, compute 10.0) ...".
std::string LogLine(const RequestRecord& record);

}  // namespace onnxd
