// Resize and Upsample: nearest and linear interpolation, separable per axis.
#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

struct AxisPlan {
  std::vector<int64_t> low, high;  // input positions per output position
  std::vector<float> weight;       // of `high`
};

struct ResizeMode {
  std::string coordinates, nearest;
  bool linear;
};

double InputCoordinate(const ResizeMode& mode, int64_t x, double scale, int64_t in, int64_t out) {
  const auto position = static_cast<double>(x);
  if (mode.coordinates == "align_corners") {
    return out == 1 ? 0.0 : position * static_cast<double>(in - 1) / static_cast<double>(out - 1);
  }
  if (mode.coordinates == "asymmetric") return position / scale;
  if (mode.coordinates == "pytorch_half_pixel" && out == 1) return 0.0;
  if (mode.coordinates == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(out) / (scale * static_cast<double>(in));
    const double center = static_cast<double>(in) / 2.0;
    return center * (1.0 - adjustment) + (position + 0.5) / scale - 0.5;
  }
  return (position + 0.5) / scale - 0.5;
}

int64_t Nearest(const std::string& mode, double x) {
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(x + 0.5));
  if (mode == "floor") return static_cast<int64_t>(std::floor(x));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  return static_cast<int64_t>(std::ceil(x - 0.5));  // round_prefer_floor
}

AxisPlan PlanAxis(const ResizeMode& mode, int64_t in, int64_t out, double scale) {
  AxisPlan plan;
  for (int64_t x = 0; x < out; ++x) {
    const double at = InputCoordinate(mode, x, scale, in, out);
    if (!mode.linear) {
      const int64_t index = std::clamp<int64_t>(Nearest(mode.nearest, at), 0, in - 1);
      plan.low.push_back(index);
      plan.high.push_back(index);
      plan.weight.push_back(0.0f);
      continue;
    }
    const double clamped = std::clamp(at, 0.0, static_cast<double>(in - 1));
    const auto low = static_cast<int64_t>(clamped);
    plan.low.push_back(low);
    plan.high.push_back(std::min(low + 1, in - 1));
    plan.weight.push_back(static_cast<float>(clamped - static_cast<double>(low)));
  }
  return plan;
}

// Interpolates one axis: in[outer, extent, inner] -> out[outer, plan size, inner].
void ResizeAxis(const AxisPlan& plan, const float* in, float* out, int64_t outer, int64_t extent,
                int64_t inner) {
  for (int64_t row = 0; row < outer; ++row) {
    const float* base = in + row * extent * inner;
    for (size_t x = 0; x < plan.low.size(); ++x) {
      const float* low = base + plan.low[x] * inner;
      const float* high = base + plan.high[x] * inner;
      const float weight = plan.weight[x];
      if (weight == 0.0f) {
        std::copy_n(low, inner, out);
      } else {
        for (int64_t i = 0; i < inner; ++i) out[i] = low[i] * (1.0f - weight) + high[i] * weight;
      }
      out += inner;
    }
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeResize(const KernelInfo& info) {
  const Node& node = info.node;
  if (info.InputType(0) != DataType::kFloat) return DeclineType(node.op_type, info.InputType(0));
  const std::string interpolation = node.attributes.String("mode", "nearest");
  ResizeMode mode;
  mode.linear = interpolation == "linear" || interpolation == "bilinear";
  if (!mode.linear && interpolation != "nearest") {
    return Unimplemented(StrCat(node.op_type, " with mode '", interpolation, "' is not supported"));
  }
  // Versions before 11 have the asymmetric coordinates and round down.
  const bool old = node.op_type == "Upsample" || node.since_version < 11;
  mode.coordinates =
      old ? "asymmetric" : node.attributes.String("coordinate_transformation_mode", "half_pixel");
  mode.nearest = old ? "floor" : node.attributes.String("nearest_mode", "round_prefer_floor");
  if (mode.coordinates == "tf_crop_and_resize" || node.attributes.Int("antialias", 0) != 0) {
    return Unimplemented(StrCat(node.op_type, " with tf_crop_and_resize or antialias"));
  }
  const size_t scales_input = old ? 1 : 2;
  return MakeKernel([mode, scales_input](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) {
      return FailedPrecondition("the sizes are not known yet");
    }
    const Shape& in = context.InputShape(0);
    const Shape& out = context.OutputShape(0);
    if (out.ElementCount() > 0 && in.ElementCount() == 0) {
      return InvalidArgument(StrCat(Describe(context.node), ": the input is empty"));
    }
    std::vector<double> scales(static_cast<size_t>(in.rank()), 0.0);
    const Tensor* given =
        context.HasInput(scales_input) ? context.inputs[scales_input].value : nullptr;
    const bool per_axis =
        given != nullptr && given->type() == DataType::kFloat && given->ElementCount() == in.rank();
    std::vector<std::pair<int, AxisPlan>> axes;
    int64_t largest = 0;
    Shape shape = in;
    for (int axis = 0; axis < in.rank(); ++axis) {
      const double ratio = static_cast<double>(out[axis]) / static_cast<double>(in[axis]);
      const double scale = per_axis ? static_cast<double>(given->data<float>()[axis]) : ratio;
      if (out[axis] == in[axis] && scale == 1.0) continue;
      axes.emplace_back(axis, PlanAxis(mode, in[axis], out[axis], scale));
      shape[axis] = out[axis];
      largest = std::max(largest, shape.ElementCount());
    }
    PreparedKernel prepared;
    // Two intermediate images, used in turn.
    const int64_t buffer = axes.size() > 1 ? (largest + 15) / 16 * 16 : 0;
    prepared.scratch_bytes = static_cast<size_t>(2 * buffer) * sizeof(float);
    prepared.compute = [axes, in, buffer](const KernelContext& k) {
      Shape current = in;
      const float* from = k.input<float>(0);
      if (axes.empty()) std::copy_n(from, in.ElementCount(), k.output<float>(0));
      for (size_t i = 0; i < axes.size(); ++i) {
        const auto& [axis, plan] = axes[i];
        float* to = i + 1 == axes.size()
                        ? k.output<float>(0)
                        : k.scratch<float>() + static_cast<int64_t>(i % 2) * buffer;
        ResizeAxis(plan, from, to, current.ElementCount(0, axis), current[axis],
                   current.ElementCount(axis + 1, current.rank()));
        current[axis] = static_cast<int64_t>(plan.low.size());
        from = to;
      }
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
