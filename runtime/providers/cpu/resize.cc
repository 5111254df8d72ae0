// Resize-10 to -19 and Upsample-1 to -10.
#include <algorithm>

#include "runtime/kernel/kernel.h"
#include "runtime/ops/resize_plan.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

// The last axis: out[x] is a sum of a few elements of the row.
template <typename T>
void ResizeRow(const ResizeAxisPlan& plan, const T* in, T* out) {
  const auto size = static_cast<size_t>(plan.size());
  if (plan.doubles) {
    for (size_t x = 0; x < size / 2; ++x) out[2 * x] = out[2 * x + 1] = in[x];
    if (size % 2 != 0) out[size - 1] = in[size / 2];
  } else if (plan.taps == 1) {
    for (size_t x = 0; x < size; ++x) out[x] = in[plan.index[x]];
  } else if constexpr (std::is_floating_point_v<T>) {
    const int64_t* index = plan.index.data();
    const float* weights = plan.weights.data();
    for (size_t x = 0; x < size; ++x) {
      T sum = static_cast<T>(*weights++) * in[*index++];
      for (size_t t = 1; t < plan.taps; ++t, ++index) {
        const auto weight = static_cast<T>(*weights++);
        sum += weight != T(0) ? weight * in[*index] : T(0);
      }
      out[x] = sum;
    }
  }
}

// One position of an axis with `inner` elements: a sum of a few others, which begin at `base`.
template <typename T>
void ResizePosition(const ResizeAxisPlan& plan, size_t at, T extrapolation, const T* base, T* out,
                    int64_t inner) {
  if (plan.outside[at]) {
    std::fill_n(out, inner, extrapolation);
    return;
  }
  for (size_t t = at * plan.taps; t < (at + 1) * plan.taps; ++t) {
    const T* from = base + plan.index[t] * inner;
    const bool begins = t == at * plan.taps;
    if constexpr (std::is_floating_point_v<T>) {
      const T weight = static_cast<T>(plan.weights[t]);
      if (begins && weight == T(1) && plan.taps == 1) {
        std::copy_n(from, inner, out);
      } else if (begins && plan.taps == 2 && plan.weights[t + 1] != 0) {
        const T* second = base + plan.index[t + 1] * inner;
        const T other = static_cast<T>(plan.weights[t + 1]);
        for (int64_t i = 0; i < inner; ++i) out[i] = weight * from[i] + other * second[i];
        return;
      } else if (begins) {
        for (int64_t i = 0; i < inner; ++i) out[i] = weight * from[i];
      } else if (weight != T(0)) {
        for (int64_t i = 0; i < inner; ++i) out[i] += weight * from[i];
      }
    } else {
      std::copy_n(from, inner, out);
    }
  }
}

// The row [extent, inner] to [plan size, inner].
template <typename T>
void ResizeAcross(const ResizeAxisPlan& plan, bool leaves, T extrapolation, const T* in, T* out,
                  int64_t inner) {
  const int64_t size = plan.size();
  if (inner > 1) {
    for (int64_t x = 0; x < size; ++x) {
      ResizePosition(plan, static_cast<size_t>(x), extrapolation, in, out + x * inner, inner);
    }
    return;
  }
  ResizeRow(plan, in, out);
  for (int64_t x = 0; leaves && x < size; ++x) {
    if (plan.outside[static_cast<size_t>(x)]) out[x] = extrapolation;
  }
}

// Two axes after each other, row by row: in[outer, height, width, inner] -> out[outer, down size,
// across size, inner]. `scratch`: a row of the width for each row of the result.
template <typename T>
void ResizeImages(const ResizeAxisPlan& down, const ResizeAxisPlan& across, T extrapolation,
                  const T* in, T* out, T* scratch, const Shape& shape, int axis, ThreadPool& pool) {
  constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread
  const int64_t inner = shape.ElementCount(axis + 2, shape.rank());
  const int64_t height = shape[axis], from_row = shape[axis + 1] * inner;
  const int64_t to_row = across.size() * inner, rows = shape.ElementCount(0, axis) * down.size();
  const bool leaves = across.anything_outside();
  pool.ParallelFor(
      rows, 1 + kGrain / std::max<int64_t>(1, to_row), [&](int64_t first, int64_t last) {
        T* const blended = scratch + first * from_row;
        const T* before = nullptr;  // what the row before was made of, if it was one row
        for (int64_t row = first; row < last; ++row) {
          const auto y = static_cast<size_t>(row % down.size());
          const T* image = in + row / down.size() * height * from_row;
          T* const to = out + row * to_row;
          const bool one = down.taps == 1 && !down.outside[y] && down.weights[y] == 1.0f;
          const T* source = one ? image + down.index[y] * from_row : blended;
          if (one && source == before) {
            std::copy_n(to - to_row, to_row, to);
            continue;
          }
          before = one ? source : nullptr;
          if (!one) ResizePosition(down, y, extrapolation, image, blended, from_row);
          ResizeAcross(across, leaves, extrapolation, source, to, inner);
        }
      });
}

// Interpolates one axis: in[outer, extent, inner] -> out[outer, plan size, inner].
template <typename T>
void ResizeAxis(const ResizeAxisPlan& plan, T extrapolation, const T* in, T* out, int64_t outer,
                int64_t extent, int64_t inner, ThreadPool& pool) {
  constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread
  const int64_t size = plan.size(), width = inner == 1 ? size : inner;
  const int64_t rows = inner == 1 ? outer : outer * size;
  const bool leaves = inner == 1 && plan.anything_outside();
  pool.ParallelFor(rows, 1 + kGrain / std::max<int64_t>(1, width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (inner == 1) {
        ResizeAcross(plan, leaves, extrapolation, in + row * extent, out + row * size, 1);
      } else {
        ResizePosition(plan, static_cast<size_t>(row % size), extrapolation,
                       in + row / size * extent * inner, out + row * inner, inner);
      }
    }
  });
}

template <typename T>
void Run(const ResizePlan& plan, const T* from, T* target, T* scratch, ThreadPool& pool) {
  Shape current = plan.in;
  T extrapolation{};
  if constexpr (std::is_integral_v<T>) extrapolation = Truncated<T>(plan.extrapolation);
  if constexpr (std::is_floating_point_v<T>) extrapolation = static_cast<T>(plan.extrapolation);
  if (plan.axes.empty()) std::copy_n(from, plan.in.ElementCount(), target);
  if (plan.axes.size() == 2 && plan.axes[1].first == plan.axes[0].first + 1) {
    return ResizeImages(plan.axes[0].second, plan.axes[1].second, extrapolation, from, target,
                        scratch, plan.in, plan.axes[0].first, pool);
  }
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    const auto& [axis, axis_plan] = plan.axes[i];
    T* to =
        i + 1 == plan.axes.size() ? target : scratch + static_cast<int64_t>(i % 2) * plan.buffer;
    ResizeAxis(axis_plan, extrapolation, from, to, current.ElementCount(0, axis), current[axis],
               current.ElementCount(axis + 1, current.rank()), pool);
    current[axis] = axis_plan.size();
    from = to;
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeResize(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  ONNXD_ASSIGN_OR_RETURN(const ResizeMode mode, ResizeModeOf(info.node));
  const bool moves = mode.interpolation == ResizeMode::Interpolation::kNearest &&
                     mode.coordinates != "tf_crop_and_resize";
  const bool through_float = !moves && IsInteger(type) && IsMovable(type);
  if (!IsMovable(type) || (!moves && !through_float && !IsFloatOrDouble(type))) {
    return DeclineType(info.node.op_type, type);
  }
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) {
      return FailedPrecondition("the sizes are not known yet");
    }
    std::vector<const Tensor*> known;
    for (const OperandInfo& input : context.inputs) known.push_back(input.value);
    ONNXD_ASSIGN_OR_RETURN(ResizePlan made,
                           PlanResize(mode, context.node, context.InputShape(0), known));
    const auto plan = std::make_shared<const ResizePlan>(std::move(made));
    const int64_t in_count = context.InputShape(0).ElementCount();
    const int64_t out_count = context.OutputShape(0).ElementCount();
    const auto width = static_cast<int64_t>(DataTypeBits(type) / 8);
    PreparedKernel prepared;
    if (through_float) {
      const int64_t in_floats = (in_count + 15) / 16 * 16, out_floats = (out_count + 15) / 16 * 16;
      prepared.scratch_bytes =
          static_cast<size_t>(2 * plan->buffer + in_floats + out_floats) * sizeof(float);
      prepared.compute = [=](const KernelContext& k) {
        float* in = k.scratch<float>();
        float* out = in + in_floats;
        ConvertElements(type, k.input<void>(0), DataType::kFloat, in, in_count);
        Run<float>(*plan, in, out, out + out_floats, k.pool());
        ConvertElements(DataType::kFloat, out, type, k.output<void>(0), out_count);
        return Status::Ok();
      };
      return prepared;
    }
    prepared.scratch_bytes = static_cast<size_t>(2 * plan->buffer * width);
    prepared.compute = [=](const KernelContext& k) {
      const auto run = [&]<typename T>() {
        Run<T>(*plan, k.input<T>(0), k.output<T>(0), k.scratch<T>(), k.pool());
      };
      if (!DispatchFloat(type, run)) DispatchWidth(type, run);
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
