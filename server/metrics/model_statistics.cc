#include "server/metrics/model_statistics.h"

namespace onnxd {
namespace {

// Batches of more sizes than this count as the next below: the table stays small.
constexpr size_t kMostSizes = 256;

void Add(ModelStatistics::Run& to, const RunTimes& times, uint64_t count) {
  to.input.Add(times.input, count);
  to.run.Add(times.run, count);
  to.output.Add(times.output, count);
}

}  // namespace

void ModelStatistics::CountAnswer(bool success, std::chrono::nanoseconds whole) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  std::lock_guard lock(mutex_);
  (success ? totals_.success : totals_.failure).Add(whole);
  if (success) totals_.last_inference_ms = now;
}

void ModelStatistics::CountQueue(std::chrono::nanoseconds waited) {
  std::lock_guard lock(mutex_);
  totals_.queue.Add(waited);
}

void ModelStatistics::CountRun(int64_t rows, int64_t requests, const RunTimes& times) {
  std::lock_guard lock(mutex_);
  totals_.inferences += static_cast<uint64_t>(rows);
  ++totals_.executions;
  Add(totals_.requests, times, static_cast<uint64_t>(requests));
  auto entry = totals_.batches.find(rows);
  if (entry == totals_.batches.end()) {
    entry = totals_.batches.upper_bound(rows);
    if (entry != totals_.batches.begin()) --entry;
    if (totals_.batches.size() < kMostSizes) entry = totals_.batches.try_emplace(rows).first;
  }
  Add(entry->second, times, 1);
}

ModelStatistics::Totals ModelStatistics::totals() const {
  std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace onnxd
