#include "server/batching/service_times.h"

#include <algorithm>
#include <bit>

namespace onnxd {
namespace {

// Means forget: the last ten batches of a size weigh most.
constexpr double kWeight = 0.1;
// A larger batch must make rows cheaper by so much, or it only makes them wait for each other.
constexpr double kGain = 0.9;
// Batches after which a size that lost is tried again.
constexpr int64_t kForgetAfter = 2000;

// The index of the sizes that hold `rows`.
size_t IndexOf(int64_t rows) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(rows, 1) - 1)));
}

}  // namespace

void ServiceTimes::Record(int64_t rows, double seconds) {
  Size& size = sizes_[std::min(IndexOf(rows), kSizes - 1)];
  const double each = seconds / static_cast<double>(std::max<int64_t>(rows, 1));
  const double weight = std::max(kWeight, 1.0 / static_cast<double>(size.batches + 1));
  size.seconds_per_row += weight * (each - size.seconds_per_row);
  ++size.batches;
  size.last = ++total_;
  if (rows == 1) lone_[static_cast<size_t>(lone_count_++) % kLoneKept] = seconds;
}

const ServiceTimes::Size* ServiceTimes::Nearest(size_t index) const {
  for (size_t distance = 0; distance < kSizes; ++distance) {
    for (const size_t i : {index - distance, index + distance}) {
      if (i < kSizes && sizes_[i].batches > 0) return &sizes_[i];
    }
  }
  return nullptr;
}

std::optional<double> ServiceTimes::Expected(int64_t rows) const {
  const Size* size = Nearest(std::min(IndexOf(rows), kSizes - 1));
  if (size == nullptr) return std::nullopt;
  return size->seconds_per_row * static_cast<double>(std::max<int64_t>(rows, 1));
}

int64_t ServiceTimes::BestSize(int64_t most) const {
  size_t best = kSizes;
  for (size_t i = 0; i < kSizes && (int64_t{1} << i) <= most; ++i) {
    if (sizes_[i].batches == 0) continue;
    if (best == kSizes || sizes_[i].seconds_per_row < kGain * sizes_[best].seconds_per_row)
      best = i;
  }
  if (best == kSizes) return 1;
  const int64_t size = int64_t{1} << best;
  if (best + 1 == kSizes || 2 * size > most) return size;
  const Size& next = sizes_[best + 1];
  const bool unknown = next.batches == 0 || total_ - next.last > kForgetAfter;
  return unknown ? 2 * size : size;
}

std::optional<double> ServiceTimes::LoneP95() const {
  const auto count = std::min<size_t>(static_cast<size_t>(lone_count_), kLoneKept);
  if (count < 20) return std::nullopt;
  std::array<double, kLoneKept> sorted = lone_;
  const auto nth = sorted.begin() + static_cast<ptrdiff_t>(count * 95 / 100);
  std::nth_element(sorted.begin(), nth, sorted.begin() + static_cast<ptrdiff_t>(count));
  return *nth;
}

}  // namespace onnxd
