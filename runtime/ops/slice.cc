#include "runtime/ops/slice.h"

#include <algorithm>
#include <limits>

#include "runtime/base/checked_math.h"

namespace onnxd {

int64_t LargestExtent(const SymbolicShape& shape, DataType element) {
  constexpr int64_t kMostBits = int64_t{1} << 50;  // of 47 bits of addresses
  int64_t most = kMostBits / std::max(1, DataTypeBits(element));
  for (const Dimension& dimension : shape) {
    if (dimension.known() && dimension.value > 0) most /= dimension.value;
  }
  return std::min(most, (int64_t{1} << 31) - 1);
}

bool SliceTakesAll(const Dimension& dimension, int64_t start, int64_t end, int64_t step,
                   int64_t largest) {
  if (step != 1) return false;
  if (!dimension.known()) return start == 0 && end >= largest;
  return NormalizeSlice(start, end, step, dimension.value).count == dimension.value;
}

SliceRange NormalizeSlice(int64_t start, int64_t end, int64_t step, int64_t dim) {
  const auto wrap = [&](int64_t index) { return index < 0 ? SaturatingAdd(index, dim) : index; };
  start = wrap(start);
  end = wrap(end);
  SliceRange range{0, step, 0};
  if (step > 0) {
    range.start = std::clamp<int64_t>(start, 0, dim);
    const int64_t stop = std::clamp<int64_t>(end, 0, dim);
    if (stop > range.start) range.count = (stop - range.start - 1) / step + 1;
  } else {
    range.start = std::clamp<int64_t>(start, -1, dim - 1);
    const int64_t stop = std::clamp<int64_t>(end, -1, dim - 1);
    // step may be INT64_MIN, whose negation overflows.
    const int64_t stride =
        step == std::numeric_limits<int64_t>::min() ? std::numeric_limits<int64_t>::max() : -step;
    if (range.start > stop) range.count = (range.start - stop - 1) / stride + 1;
  }
  return range;
}

}  // namespace onnxd
