// LoadMeter: how loaded the server is, for load balancers that weigh servers by it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

namespace onnxd {

// Fields as in ORCA's OrcaLoadReport.
// Source: https://github.com/cncf/xds/blob/main/xds/data/orca/v3/orca_load_report.proto
struct LoadReport {
  double cpu_utilization = 0;          // of the processors this process may use
  double mem_utilization = 0;          // of the memory budget
  double application_utilization = 0;  // as metric onnxd_saturation_ratio; above 1: work waits
  double rps_fractional = 0;           // inference requests answered a second
  double eps = 0;                      // of these, failures of the server
  double queued_requests = 0;          // that wait for an executor
};

// Any thread.
class LoadMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Counts are since the start of the process.
  struct Reading {
    double cpu_seconds = 0;
    int64_t answered = 0, failed = 0;
    double mem_utilization = 0, application_utilization = 0;
    int64_t queued = 0;
  };
  using Read = std::function<Reading()>;

  // `read` is called by Report alone, by one thread at a time.
  LoadMeter(int processors, Read read, Time now);

  // At most 100 ms old. Rates are means of the last one to two seconds; where nobody has asked for
  // longer, of all that time, and a second later of that second.
  LoadReport Report(Time now);

 private:
  struct Sample {
    Time at;
    Reading reading;
  };

  const double processors_;
  const Read read_;
  std::mutex mutex_;
  // Of at least a second ago, but for the first; and the one after it. Guarded by mutex_.
  Sample before_, since_;
  LoadReport report_;            // guarded by mutex_
  Time reported_ = Time::min();  // guarded by mutex_
};

}  // namespace onnxd
