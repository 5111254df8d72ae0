#include "runtime/providers/cpu/pool_rows.h"

#include <array>
#include <limits>

#include "runtime/math/simd.h"

namespace onnxd {
namespace {

constexpr int64_t kGrain = 16384;  // outputs that are worth another thread

float Combined(bool average, float a, float b) {
  if (average) return a + b;
  return a != a || a > b ? a : b;
}

// Output positions [first, end) of an axis whose windows are inside of the input.
struct Inside {
  int64_t first, end;
};

Inside InsideOf(const AxisWindow& axis) {
  const int64_t reach = (axis.kernel - 1) * axis.dilation;
  const int64_t first = (axis.pad_begin + axis.stride - 1) / axis.stride;
  const int64_t last_start = axis.extent - 1 - reach + axis.pad_begin;
  const int64_t end = last_start < 0 ? 0 : last_start / axis.stride + 1;
  const int64_t begin = std::min(std::max<int64_t>(first, 0), axis.outputs);
  return {begin, std::max(begin, std::min(end, axis.outputs))};
}

class RowPool {
 public:
  RowPool(const PoolPlan& plan, bool average)
      : plan_(plan), average_(average), inside_(InsideOf(plan.axes[2])) {}

  // `row` has room for a row of the input.
  void RunPlane(const float* in, float* row, float* out) const {
    const int64_t outputs = plan_.axes[2].outputs;
    for (int64_t oz = 0; oz < plan_.axes[0].outputs; ++oz) {
      const Taps z = plan_.axes[0].At(oz);
      for (int64_t oy = 0; oy < plan_.axes[1].outputs; ++oy, out += outputs) {
        const Taps y = plan_.axes[1].At(oy);
        RunRow(JoinRows(in, z, y, row), out);
        if (average_) Divide(z, y, out);
      }
    }
  }

 private:
  // All rows of the windows of one row of outputs, in `row` where there is not just one.
  const float* JoinRows(const float* in, const Taps& z, const Taps& y, float* row) const {
    constexpr int64_t kMostAtOnce = 8;
    const math::Simd& simd = math::CurrentSimd();
    const int64_t height = plan_.axes[1].extent, width = plan_.axes[2].extent;
    const int64_t rows = z.count * y.count;
    const auto at = [&](int64_t i) {
      const int64_t plane = z.first + i / y.count * plan_.axes[0].dilation;
      return in + (plane * height + y.first + i % y.count * plan_.axes[1].dilation) * width;
    };
    if (rows == 1) return at(0);
    if (rows == 0) {
      std::fill_n(row, width, Nothing());
    } else if (!average_ && rows <= kMostAtOnce) {
      std::array<const float*, kMostAtOnce> all;
      for (int64_t i = 0; i < rows; ++i) all[static_cast<size_t>(i)] = at(i);
      simd.max_rows(all.data(), rows, row, width);
    } else {
      const math::Binary op = average_ ? math::Binary::kAdd : math::Binary::kMax;
      simd.binary(op, at(0), at(1), row, width, 1, 1);
      for (int64_t i = 2; i < rows; ++i) simd.binary(op, row, at(i), row, width, 1, 1);
    }
    return row;
  }

  float Nothing() const { return average_ ? 0.0f : std::numeric_limits<float>::lowest(); }

  void RunRow(const float* row, float* out) const {
    const AxisWindow& axis = plan_.axes[2];
    const int64_t count = inside_.end - inside_.first;
    if (count > 0) {
      const float* from = row + inside_.first * axis.stride - axis.pad_begin;
      math::CurrentSimd().pool_row(
          {from, axis.kernel, axis.stride, axis.dilation, average_, out + inside_.first, count});
    }
    for (int64_t ox = 0; ox < axis.outputs; ++ox) {
      if (ox == inside_.first) ox = inside_.end;
      if (ox == axis.outputs) break;
      const Taps x = axis.At(ox);
      float result = Nothing();
      for (int64_t k = 0; k < x.count; ++k) {
        result = Combined(average_, row[x.first + k * axis.dilation], result);
      }
      out[ox] = result;
    }
  }

  void Divide(const Taps& z, const Taps& y, float* out) const {
    const AxisWindow& axis = plan_.axes[2];
    const int64_t rows = plan_.include_pad ? z.padded * y.padded : z.count * y.count;
    const auto divide = [&](int64_t first, int64_t end) {
      if (first >= end) return;
      const Taps x = axis.At(first);
      const int64_t count = rows * (plan_.include_pad ? x.padded : x.count);
      if (count == 0) return std::fill(out + first, out + end, 0.0f);
      const auto divisor = static_cast<float>(count);
      math::CurrentSimd().binary(math::Binary::kDiv, out + first, &divisor, out + first,
                                 end - first, 1, 0);
    };
    for (int64_t ox = 0; ox < inside_.first; ++ox) divide(ox, ox + 1);
    divide(inside_.first, inside_.end);
    for (int64_t ox = inside_.end; ox < axis.outputs; ++ox) divide(ox, ox + 1);
  }

  const PoolPlan& plan_;
  const bool average_;
  const Inside inside_;
};

}  // namespace

PreparedKernel PreparePoolByRows(const PoolPlan& plan, bool average, int threads) {
  const int64_t width = plan.axes[2].extent;
  const int64_t worth = 1 + plan.planes * plan.out_plane / kGrain;
  const int64_t workers = std::min({worth, plan.planes, static_cast<int64_t>(threads)});
  PreparedKernel prepared;
  prepared.scratch_bytes = static_cast<size_t>(workers * width) * sizeof(float);
  prepared.compute = [plan, average, workers, width](const KernelContext& k) {
    const RowPool pool(plan, average);
    k.pool().ParallelFor(workers, 1, [&](int64_t first, int64_t last) {
      for (int64_t worker = first; worker < last; ++worker) {
        const Share share = ShareOf(plan.planes, worker, workers);
        for (int64_t p = share.begin; p < share.end; ++p) {
          pool.RunPlane(k.input<float>(0) + p * plan.in_plane, k.scratch<float>() + worker * width,
                        k.output<float>(0) + p * plan.out_plane);
        }
      }
    });
    return Status::Ok();
  };
  return prepared;
}

}  // namespace onnxd
