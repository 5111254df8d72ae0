// When a batch begins and how large it is: a pure function of what waits and what is known.
#pragma once

#include <cstdint>
#include <vector>

#include "server/batching/service_times.h"

namespace onnxd {

// As Triton's dynamic_batching has them; what is not given follows the measurements.
struct BatchSettings {
  int64_t max_batch_size = 1;                 // rows; 1: requests run alone
  std::vector<int64_t> preferred_batch_size;  // ascending
  double max_queue_delay = -1;                // seconds; below 0: found out
  double target_p99 = 0;                      // seconds; 0: none
};

struct BatchView {
  int64_t rows = 0;            // that wait and fit into one batch with the most urgent request
  double waited = 0;           // seconds, the longest of them
  double rows_per_second = 0;  // that arrive
  int64_t idle_executors = 1;  // the one that asks included
  int64_t executors = 1;
  // The model's runs share a device, which computes one after the other.
  bool on_device = false;
  double busy = 0;  // seconds until those under way are over, where on_device
};

struct BatchDecision {
  int64_t rows;  // how many to take now; 0: none yet
  double wait;   // seconds until asking again is worth it
};

// Whether requests wait for others because the settings say so, whatever was measured.
bool WaitsAsTold(const BatchSettings& settings);

// Requires view.rows > 0.
//
// Where the settings name no sizes and no delay: never larger than ServiceTimes::BestSize, since
// then rows only wait for each other; waits for more rows only where the executors are busy most of
// the time and the missing rows come within a quarter of what the batch takes. Always split among
// idle executors, unless on a device: there what is no full batch waits until the device is nearly
// free, whatever the settings say, since it would wait there.
BatchDecision DecideBatch(const BatchView& view, const ServiceTimes& times,
                          const BatchSettings& settings);

// With how many rows so many run on a device, which prepares for each number: the next one of
// 1, 2, 4, 8, 12, 16, 24, 32, ..., the preferred sizes and the largest.
int64_t DeviceBatchSize(int64_t rows, const BatchSettings& settings);

}  // namespace onnxd
