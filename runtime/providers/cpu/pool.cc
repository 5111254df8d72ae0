// MaxPool, AveragePool and their global forms, channels first; up to three spatial axes.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// For one axis: per output position the taps that fall inside the input, and the extent counted by
// AveragePool with count_include_pad.
struct AxisTaps {
  std::vector<std::vector<int64_t>> inside;
  std::vector<int64_t> padded_count;
};

AxisTaps TapsOf(const Window& window, size_t axis, int64_t extent) {
  AxisTaps taps;
  for (int64_t o = 0; o < window.output[axis]; ++o) {
    const int64_t start = o * window.strides[axis] - window.pads_begin[axis];
    std::vector<int64_t>& inside = taps.inside.emplace_back();
    int64_t padded = 0;
    for (int64_t k = 0; k < window.kernel[axis]; ++k) {
      const int64_t at = start + k * window.dilations[axis];
      if (at >= 0 && at < extent) inside.push_back(at);
      // A window that ceil_mode lets hang over the padding counts only up to the padding's end.
      if (at < extent + window.pads_end[axis]) ++padded;
    }
    taps.padded_count.push_back(padded);
  }
  return taps;
}

struct PoolPlan {
  int64_t planes, in_plane, out_plane;
  std::array<AxisTaps, 3> axes;
  std::array<int64_t, 3> input{1, 1, 1};
  bool include_pad;
};

AxisTaps SinglePosition() {
  AxisTaps taps;
  taps.inside = {{0}};
  taps.padded_count = {1};
  return taps;
}

Result<PoolPlan> MakePoolPlan(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  if (x.rank() < 3 || x.rank() > 5) {
    return Unimplemented(StrCat(Describe(context.node), ": rank ", x.rank(), " is not supported"));
  }
  const std::vector<int64_t> spatial(x.begin() + 2, x.end());
  ONNXD_ASSIGN_OR_RETURN(
      const Window window,
      PoolWindow(context.node, spatial, context.node.attributes.Ints("kernel_shape")));
  PoolPlan plan;
  plan.planes = x[0] * x[1];
  plan.in_plane = x.ElementCount(2, x.rank());
  plan.out_plane =
      context.outputs[0].present ? context.OutputShape(0).ElementCount(2, x.rank()) : 0;
  plan.include_pad = context.node.attributes.Int("count_include_pad", 0) != 0;
  const size_t shift = 3 - spatial.size();
  for (size_t i = 0; i < 3; ++i) plan.axes[i] = SinglePosition();
  for (size_t i = 0; i < spatial.size(); ++i) {
    plan.axes[i + shift] = TapsOf(window, i, spatial[i]);
    plan.input[i + shift] = spatial[i];
  }
  return plan;
}

// Calls visit(z, y, x) for every output position of one plane.
template <typename Visit>
void ForPositions(const PoolPlan& plan, Visit visit) {
  for (size_t z = 0; z < plan.axes[0].inside.size(); ++z) {
    for (size_t y = 0; y < plan.axes[1].inside.size(); ++y) {
      for (size_t x = 0; x < plan.axes[2].inside.size(); ++x) visit(z, y, x);
    }
  }
}

// Calls visit(offset) for every tap of an output position that is inside the input.
template <typename Visit>
void ForTaps(const PoolPlan& plan, size_t z, size_t y, size_t x, Visit visit) {
  for (const int64_t iz : plan.axes[0].inside[z]) {
    for (const int64_t iy : plan.axes[1].inside[y]) {
      for (const int64_t ix : plan.axes[2].inside[x]) {
        visit((iz * plan.input[1] + iy) * plan.input[2] + ix);
      }
    }
  }
}

template <typename T>
void AveragePlane(const PoolPlan& plan, const T* in, T* out) {
  ForPositions(plan, [&](size_t z, size_t y, size_t x) {
    T total = 0;
    int64_t count = 0;
    ForTaps(plan, z, y, x, [&](int64_t offset) {
      total += in[offset];
      ++count;
    });
    if (plan.include_pad) {
      count = plan.axes[0].padded_count[z] * plan.axes[1].padded_count[y] *
              plan.axes[2].padded_count[x];
    }
    *out++ = count == 0 ? T{0} : total / static_cast<T>(count);
  });
}

float PoolAll(bool average, const float* in, int64_t plane) {
  const math::Simd& simd = math::CurrentSimd();
  return average ? simd.sum(in, plane) / static_cast<float>(plane) : simd.max(in, plane);
}

double PoolAll(bool average, const double* in, int64_t plane) {
  if (average) return std::accumulate(in, in + plane, 0.0) / static_cast<double>(plane);
  return std::accumulate(in, in + plane, -std::numeric_limits<double>::infinity(),
                         [](double best, double x) { return x > best || x != x ? x : best; });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMaxPool(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("MaxPool", type);
  const bool column_major = info.node.attributes.Int("storage_order", 0) != 0;
  return MakeKernel([type, column_major](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const PoolPlan plan, MakePoolPlan(context));
    const bool wants_indices = context.HasOutput(1);
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        k.pool().ParallelFor(
            plan.planes, 1 + 16384 / (plan.out_plane + 1), [&](int64_t begin, int64_t end) {
              for (int64_t p = begin; p < end; ++p) {
                const T* in = k.input<T>(0) + p * plan.in_plane;
                int64_t at = p * plan.out_plane;
                ForPositions(plan, [&](size_t z, size_t y, size_t x) {
                  T best = std::numeric_limits<T>::lowest();
                  int64_t where = -1;
                  ForTaps(plan, z, y, x, [&](int64_t offset) {
                    if (where < 0 || in[offset] > best || in[offset] != in[offset]) {
                      best = in[offset];
                      where = offset;
                    }
                  });
                  k.output<T>(0)[at] = best;
                  if (wants_indices) {
                    int64_t flat = where;
                    if (column_major && where >= 0) {
                      const int64_t ix = where % plan.input[2],
                                    iy = where / plan.input[2] % plan.input[1];
                      const int64_t iz = where / (plan.input[2] * plan.input[1]);
                      flat = (ix * plan.input[1] + iy) * plan.input[0] + iz;
                    }
                    k.output<int64_t>(1)[at] = p * plan.in_plane + flat;
                  }
                  ++at;
                });
              }
            });
      });
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeAveragePool(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsFloatOrDouble(type)) return DeclineType("AveragePool", type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const PoolPlan plan, MakePoolPlan(context));
    PreparedKernel prepared;
    prepared.compute = [plan, type](const KernelContext& k) {
      const int64_t least = 1 + 16384 / (plan.out_plane + 1);
      DispatchFloat(type, [&]<typename T>() {
        k.pool().ParallelFor(plan.planes, least, [&](int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end; ++p) {
            AveragePlane(plan, k.input<T>(0) + p * plan.in_plane,
                         k.output<T>(0) + p * plan.out_plane);
          }
        });
      });
      return Status::Ok();
    };
    return prepared;
  });
}

// GlobalAveragePool and GlobalMaxPool of any rank.
Result<std::unique_ptr<Kernel>> MakeGlobalPool(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsFloatOrDouble(type)) return DeclineType(info.node.op_type, type);
  const bool average = info.node.op_type == "GlobalAveragePool";
  return MakeKernel([average, type](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    const int64_t rows = shape[0] * shape[1], plane = shape.ElementCount(2, shape.rank());
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchFloat(type, [&]<typename T>() {
        for (int64_t row = 0; row < rows; ++row) {
          k.output<T>(0)[row] = PoolAll(average, k.input<T>(0) + row * plane, plane);
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
