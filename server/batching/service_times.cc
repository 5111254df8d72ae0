#include "server/batching/service_times.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace onnxd {
namespace {

// Means forget: the last ten batches of a size weigh most.
constexpr double kWeight = 0.1;
// A larger batch must make rows cheaper by so much, or it only makes them wait for each other.
constexpr double kGain = 0.9;
// Lone rows after which their 95th percentile is known, and after which it is found anew.
constexpr int64_t kLoneKnown = 20, kLoneEach = 4;
// Batches after which a size that lost is tried again.
constexpr int64_t kForgetAfter = 2000;
// Times the rows of the largest batch seen, as far as times are scaled to refuse a request.
constexpr int64_t kBelieved = 64;

// The index of the sizes that hold `rows`; LargestOf is the other way round.
size_t IndexOf(int64_t rows) {
  const auto before = static_cast<uint64_t>(std::max<int64_t>(rows, 1) - 1);
  const auto octave = static_cast<size_t>(std::bit_width(before));
  if (octave < 2) return octave;
  const bool upper = ((before >> (octave - 2)) & 1) != 0;
  return 2 * octave - 2 + (upper ? 1 : 0);
}

int64_t LargestOf(size_t index) {
  if (index < 2) return static_cast<int64_t>(index) + 1;
  return (index % 2 == 0 ? int64_t{3} : int64_t{4}) << (index / 2 - 1);
}

struct Point {
  double rows = 0, seconds = 0;
};

double InProportion(const Point& point, double rows) { return point.seconds / point.rows * rows; }

double Slope(const Point& from, const Point& to) {
  return (to.seconds - from.seconds) / (to.rows - from.rows);
}

}  // namespace

void ServiceTimes::Record(int64_t rows, double seconds) {
  Size& size = sizes_[std::min(IndexOf(rows), kSizes - 1)];
  const double each = seconds / static_cast<double>(std::max<int64_t>(rows, 1));
  const double weight = std::max(kWeight, 1.0 / static_cast<double>(size.batches + 1));
  size.seconds_per_row += weight * (each - size.seconds_per_row);
  ++size.batches;
  size.last = ++total_;
  largest_ = std::max(largest_, rows);
  if (rows != 1) return;
  lone_[static_cast<size_t>(lone_count_++) % kLoneKept] = seconds;
  if (lone_count_ >= kLoneKnown && lone_count_ % kLoneEach == 0) lone_p95_ = FindLoneP95();
}

std::optional<double> ServiceTimes::Expected(int64_t rows) const {
  const auto exact = static_cast<double>(std::max<int64_t>(rows, 1));
  const size_t index = std::min(IndexOf(rows), kSizes - 1);
  if (sizes_[index].batches > 0) return sizes_[index].seconds_per_row * exact;
  std::optional<Point> last, below, above;
  for (size_t i = 0; i < kSizes && !above; ++i) {
    if (sizes_[i].batches == 0) continue;
    const auto held = static_cast<double>(LargestOf(i));
    const Point point{held, sizes_[i].seconds_per_row * held};
    if (i > index) {
      above = point;
    } else {
      last = std::exchange(below, point);
    }
  }
  if (!below && !above) return std::nullopt;
  if (!below) return InProportion(*above, exact);
  if (above) return below->seconds + Slope(*below, *above) * (exact - below->rows);
  if (!last || exact > 2 * below->rows) return InProportion(*below, exact);
  const double slope = std::clamp(Slope(*last, *below), 0.0, InProportion(*below, 1));
  return below->seconds + slope * (exact - below->rows);
}

std::optional<double> ServiceTimes::Believed(int64_t rows) const {
  const int64_t most = largest_ > INT64_MAX / kBelieved ? INT64_MAX : kBelieved * largest_;
  return Expected(std::min(rows, most));
}

int64_t ServiceTimes::BestSize(int64_t most) const {
  size_t best = kSizes;
  for (size_t i = 0; i < kSizes && LargestOf(i) <= most; ++i) {
    if (sizes_[i].batches == 0) continue;
    if (best == kSizes || sizes_[i].seconds_per_row < kGain * sizes_[best].seconds_per_row)
      best = i;
  }
  if (best == kSizes) return 1;
  // Twice as many rows, or half as many more, are tried once neither was seen for long.
  const size_t twice = std::min(best == 0 ? 1 : best + 2, kSizes - 1);
  for (size_t i = best + 1; i <= twice; ++i) {
    if (sizes_[i].batches > 0 && total_ - sizes_[i].last <= kForgetAfter) return LargestOf(best);
  }
  for (size_t i = twice; i > best; --i) {
    if (LargestOf(i) <= most) return LargestOf(i);
  }
  return LargestOf(best);
}

double ServiceTimes::FindLoneP95() const {
  const auto count = std::min<size_t>(static_cast<size_t>(lone_count_), kLoneKept);
  std::array<double, kLoneKept> sorted = lone_;
  const auto nth = sorted.begin() + static_cast<ptrdiff_t>(count * 95 / 100);
  std::nth_element(sorted.begin(), nth, sorted.begin() + static_cast<ptrdiff_t>(count));
  return *nth;
}

}  // namespace onnxd
