#include "server/batching/batch_policy.h"

#include <algorithm>

namespace onnxd {
namespace {

constexpr double kBusy = 0.7;           // of the executors' time: from here on waiting pays
constexpr double kShareToWait = 0.25;   // of what the batch takes
// A device's batch is prepared while the one before it ends: of what it takes, seconds at most.
constexpr double kAheadOfDevice = 0.2, kMostAhead = 1e-3;
constexpr double kLongestWait = 0.005;  // seconds, unless the settings say otherwise

// What to aim at.
int64_t Aim(const ServiceTimes& times, const BatchSettings& settings) {
  if (!settings.preferred_batch_size.empty()) {
    return std::min(settings.preferred_batch_size.back(), settings.max_batch_size);
  }
  if (WaitsAsTold(settings)) return settings.max_batch_size;
  int64_t aim = times.BestSize(settings.max_batch_size);
  // Half of the target is for waiting behind another batch.
  while (settings.target_p99 > 0 && aim > 1 &&
         times.Expected(aim).value_or(0) > settings.target_p99 / 2) {
    aim /= 2;
  }
  return aim;
}

// The largest preferred size that is there, else all.
int64_t Preferred(int64_t rows, const BatchSettings& settings) {
  int64_t taken = 0;
  for (const int64_t size : settings.preferred_batch_size) {
    if (size <= rows) taken = size;
  }
  return taken > 0 ? taken : rows;
}

double LongestWait(int64_t aim, const BatchView& view, const ServiceTimes& times,
                   const BatchSettings& settings) {
  if (settings.max_queue_delay >= 0) return settings.max_queue_delay;
  const double batch = times.Expected(aim).value_or(0);
  const double load = view.rows_per_second * batch /
                      static_cast<double>(aim * std::max<int64_t>(view.executors, 1));
  const double missing = static_cast<double>(aim - view.rows);
  const double to_fill = view.rows_per_second > 0 ? missing / view.rows_per_second : kLongestWait;
  if (load < kBusy || to_fill > kShareToWait * batch) return 0;
  return std::min(kShareToWait * batch, kLongestWait);
}

}  // namespace

bool WaitsAsTold(const BatchSettings& settings) {
  return settings.max_queue_delay > 0 && settings.max_batch_size > 1;
}

BatchDecision DecideBatch(const BatchView& view, const ServiceTimes& times,
                          const BatchSettings& settings) {
  const int64_t aim = std::clamp<int64_t>(Aim(times, settings), 1, settings.max_batch_size);
  if (view.rows >= aim) {
    const int64_t idle = view.on_device ? 1 : std::max<int64_t>(view.idle_executors, 1);
    const int64_t share = (view.rows + idle - 1) / idle;
    return {std::min(aim, std::max<int64_t>(1, share)), 0};
  }
  const double longest = LongestWait(aim, view, times, settings);
  if (view.waited < longest) return {0, longest - view.waited};
  const double ahead =
      std::min(kAheadOfDevice * times.Expected(view.rows).value_or(0), kMostAhead);
  if (view.on_device && view.busy > ahead) return {0, view.busy - ahead};
  return {Preferred(view.rows, settings), 0};
}

int64_t DeviceBatchSize(int64_t rows, const BatchSettings& settings) {
  if (rows >= settings.max_batch_size) return rows;
  int64_t size = 1;
  while (size < rows) size *= 2;
  if (size >= 16 && size / 4 * 3 >= rows) size = size / 4 * 3;
  for (const int64_t preferred : settings.preferred_batch_size) {
    if (preferred >= rows) size = std::min(size, preferred);
  }
  return std::min(size, settings.max_batch_size);
}

}  // namespace onnxd
