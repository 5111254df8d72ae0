// MaxPool, AveragePool, LpPool and their global forms, channels first; windows of up to three axes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/pool_rows.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

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
  for (size_t i = 0; i < spatial.size(); ++i) {
    plan.axes[i + shift] = {window.output[i],  spatial[i],          window.kernel[i],
                            window.strides[i], window.dilations[i], window.pads_begin[i],
                            window.pads_end[i]};
  }
  return plan;
}

// Calls visit(z, y, x) with the taps of every output position of one plane.
template <typename Visit>
void ForPositions(const PoolPlan& plan, Visit visit) {
  for (int64_t oz = 0; oz < plan.axes[0].outputs; ++oz) {
    const Taps z = plan.axes[0].At(oz);
    for (int64_t oy = 0; oy < plan.axes[1].outputs; ++oy) {
      const Taps y = plan.axes[1].At(oy);
      for (int64_t ox = 0; ox < plan.axes[2].outputs; ++ox) visit(z, y, plan.axes[2].At(ox));
    }
  }
}

// Calls visit(offset) for every tap of an output position that is inside the input.
template <typename Visit>
void ForTaps(const PoolPlan& plan, const Taps& z, const Taps& y, const Taps& x, Visit visit) {
  const int64_t height = plan.axes[1].extent, width = plan.axes[2].extent;
  for (int64_t i = 0; i < z.count; ++i) {
    const int64_t plane = (z.first + i * plan.axes[0].dilation) * height;
    for (int64_t j = 0; j < y.count; ++j) {
      const int64_t row = (plane + y.first + j * plan.axes[1].dilation) * width + x.first;
      for (int64_t k = 0; k < x.count; ++k) visit(row + k * plan.axes[2].dilation);
    }
  }
}

template <typename T>
void AveragePlane(const PoolPlan& plan, const T* in, T* out) {
  ForPositions(plan, [&](const Taps& z, const Taps& y, const Taps& x) {
    T total = 0;
    ForTaps(plan, z, y, x, [&](int64_t offset) { total += in[offset]; });
    const int64_t count =
        plan.include_pad ? z.padded * y.padded * x.padded : z.count * y.count * x.count;
    *out++ = count == 0 ? T{0} : total / static_cast<T>(count);
  });
}

// The p-norm of every window; padding counts as zero.
template <typename T>
void LpPlane(const PoolPlan& plan, double p, const T* in, T* out) {
  ForPositions(plan, [&](const Taps& z, const Taps& y, const Taps& x) {
    double sum = 0;
    ForTaps(plan, z, y, x,
            [&](int64_t offset) { sum += std::pow(std::abs(static_cast<double>(in[offset])), p); });
    *out++ = static_cast<T>(std::pow(sum, 1 / p));
  });
}

// All of a plane in one window, whatever its axes are.
PoolPlan WholePlanes(const Shape& x) {
  PoolPlan plan{};
  plan.planes = x[0] * x[1];
  plan.in_plane = x.ElementCount(2, x.rank());
  plan.out_plane = 1;
  plan.axes[2].extent = plan.axes[2].kernel = plan.in_plane;
  return plan;
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
  if (type == DataType::kFloat && info.node.output(1) == kNoValue) {
    return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
      ONNXD_ASSIGN_OR_RETURN(const PoolPlan plan, MakePoolPlan(context));
      return PreparePoolByRows(plan, false, context.threads);
    });
  }
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
                ForPositions(plan, [&](const Taps& z, const Taps& y, const Taps& x) {
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
                      const int64_t depth = plan.axes[0].extent, height = plan.axes[1].extent,
                                    width = plan.axes[2].extent;
                      const int64_t ix = where % width, iy = where / width % height;
                      flat = (ix * height + iy) * depth + where / (width * height);
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
    if (type == DataType::kFloat) return PreparePoolByRows(plan, true, context.threads);
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

// LpPool and, of any rank, GlobalLpPool.
Result<std::unique_ptr<Kernel>> MakeLpPool(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsFloatOrDouble(type)) return DeclineType(info.node.op_type, type);
  const bool global = info.node.op_type == "GlobalLpPool";
  const Attributes& a = info.node.attributes;
  const double p = info.node.since_version == 1 ? static_cast<double>(a.Float("p", 2))
                                                : static_cast<double>(a.Int("p", 2));
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    PoolPlan plan;
    if (global) {
      plan = WholePlanes(context.InputShape(0));
    } else {
      ONNXD_ASSIGN_OR_RETURN(plan, MakePoolPlan(context));
    }
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchFloat(type, [&]<typename T>() {
        for (int64_t i = 0; i < plan.planes; ++i) {
          LpPlane(plan, p, k.input<T>(0) + i * plan.in_plane, k.output<T>(0) + i * plan.out_plane);
        }
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
