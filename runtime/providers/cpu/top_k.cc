// TopK-1, -10, -11, -24.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/providers/cpu/order_by_digits.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// Of so many, comparing each with each takes less than sorting.
constexpr int64_t kMostRanked = 256;

// The order of x[extent], stride apart, up to kMostRanked of them.
void OrderByRanks(const float* x, int64_t extent, int64_t stride, bool largest, int64_t* order) {
  std::array<int32_t, kMostRanked> keys, ranks;
  for (int64_t i = 0; i < extent; ++i) {
    keys[static_cast<size_t>(i)] = OrderOf(x[i * stride], largest);
  }
  math::CurrentSimd().ranks(keys.data(), extent, ranks.data());
  for (int64_t i = 0; i < extent; ++i) order[ranks[static_cast<size_t>(i)]] = i;
}

// Whether so few are taken that each is better put in its place.
bool IsByInsertion(int64_t count, int64_t extent) {
  constexpr int64_t kMostInserted = 32;
  return count <= kMostInserted && count <= extent / 4;
}

// The first `count` of the numbers below `extent`, in the order of `comes_before`, in
// order[extent]. `is_behind` may say sooner that a number does not come before a lower one.
template <typename Before, typename Behind>
void FirstOnes(int64_t* order, int64_t count, int64_t extent, Before comes_before,
               Behind is_behind) {
  if (count == 0) return;
  const bool by_insertion = IsByInsertion(count, extent);
  std::iota(order, order + (by_insertion ? count : extent), int64_t{0});
  if (!by_insertion) {
    std::partial_sort(order, order + count, order + extent, comes_before);
    return;
  }
  std::sort(order, order + count, comes_before);
  for (int64_t i = count; i < extent; ++i) {
    const int64_t last = order[count - 1];
    if (is_behind(i, last) || !comes_before(i, last)) continue;
    int64_t at = count - 1;
    for (; at > 0 && comes_before(i, order[at - 1]); --at) order[at] = order[at - 1];
    order[at] = i;
  }
}

// Numbers side by side, of rows of which the best of each column is found in vectors.
constexpr int64_t kColumns = 64;

// Whether the first `count` of so many floats are found by the best of columns: at least as many
// are as good as the `count`th of those, and few columns have any.
bool IsByColumns(int64_t count, int64_t extent) {
  return count > 0 && count <= kColumns / 4 && extent >= 8 * kColumns;
}

// Those numbers of x[extent], in order[extent], in the order of `comes_before`; false: NaN is in
// the way.
template <typename Before>
bool FirstByColumns(const float* x, int64_t extent, bool largest, int64_t count, int64_t* order,
                    Before comes_before) {
  const math::Simd& simd = math::CurrentSimd();
  const auto is_nan = [](float v) { return std::isnan(v); };
  if (largest ? is_nan(simd.max(x, extent)) : std::any_of(x, x + kColumns, is_nan)) return false;
  std::array<float, kColumns> best, sorted;
  std::array<int32_t, kColumns> places;
  const int64_t rows = extent / kColumns;
  simd.column_places({x, kColumns, rows, kColumns, !largest, best.data(), places.data()});
  const auto is_better = [largest](float a, float b) { return largest ? a > b : a < b; };
  sorted = best;
  std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(), is_better);
  const float least = sorted[static_cast<size_t>(count - 1)];
  int64_t found = 0;
  const auto look = [&](int64_t i) {
    if (!is_better(least, x[i])) order[found++] = i;
  };
  for (int64_t c = 0; c < kColumns; ++c) {
    if (is_better(least, best[static_cast<size_t>(c)])) continue;
    for (int64_t row = 0; row < rows; ++row) look(row * kColumns + c);
  }
  for (int64_t i = rows * kColumns; i < extent; ++i) look(i);
  std::partial_sort(order, order + count, order + found, comes_before);
  return true;
}

}  // namespace

// TopK: values and indices, sorted; equal values in index order.
Result<std::unique_ptr<Kernel>> MakeTopK(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("TopK", type);
  const bool largest = info.node.attributes.Int("largest", 1) != 0;
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr && context.outputs[1].shape == nullptr) {
      return FailedPrecondition("k is not known yet");
    }
    const Shape& in = context.InputShape(0);
    const Shape& out = context.outputs[0].present ? context.OutputShape(0) : context.OutputShape(1);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", -1), in.rank()));
    const int64_t outer = in.ElementCount(0, axis), extent = in[axis], count = out[axis];
    const int64_t inner = in.ElementCount(axis + 1, in.rank());
    PreparedKernel prepared;
    const bool by_digits = type == DataType::kFloat && extent > kMostRanked &&
                           extent <= kMostOrderedByDigits && !IsByInsertion(count, extent);
    // The order; behind it the digits' entries.
    prepared.scratch_bytes = static_cast<size_t>(by_digits ? 3 * extent : extent) * 8;
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        auto* order = k.scratch<int64_t>();
        for (int64_t row = 0; row < outer; ++row) {
          for (int64_t column = 0; column < inner; ++column) {
            const T* base = k.input<T>(0) + row * extent * inner + column;
            const auto comes_before = [&](int64_t a, int64_t b) {
              const T x = base[a * inner], y = base[b * inner];
              // NaN sorts as the largest, so that the order is total.
              if (x != x || y != y) {
                if ((x != x) == (y != y)) return a < b;
                return largest ? x != x : y != y;
              }
              if (x == y) return a < b;
              return largest ? x > y : x < y;
            };
            bool is_ordered = false;
            if constexpr (std::is_same_v<T, float>) {
              is_ordered = by_digits || (extent <= kMostRanked && !IsByInsertion(count, extent));
              if (inner == 1 && IsByColumns(count, extent)) {
                is_ordered = FirstByColumns(base, extent, largest, count, order, comes_before);
              } else if (by_digits) {
                OrderByDigits(base, extent, inner, largest, count, k.scratch<uint64_t>() + extent,
                              order);
              } else if (is_ordered) {
                OrderByRanks(base, extent, inner, largest, order);
              }
            }
            if (!is_ordered) {
              FirstOnes(order, count, extent, comes_before, [&](int64_t a, int64_t b) {
                const T x = base[a * inner], y = base[b * inner];
                return largest ? x <= y : x >= y;
              });
            }
            for (int64_t i = 0; i < count; ++i) {
              const int64_t at = (row * count + i) * inner + column;
              if (k.output<T>(0) != nullptr) k.output<T>(0)[at] = base[order[i] * inner];
              if (k.output<int64_t>(1) != nullptr) k.output<int64_t>(1)[at] = order[i];
            }
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
