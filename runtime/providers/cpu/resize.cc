// Resize-10 to -19 and Upsample-1 to -10: every interpolation is separable, so each axis is a
// weighted sum of a few input positions per output position.
#include "runtime/ops/resize.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

enum class Interpolation { kNearest, kLinear, kCubic };

struct ResizeMode {
  Interpolation interpolation;
  std::string coordinates, nearest;
  bool antialias, exclude_outside;
  double cubic_a, extrapolation;
};

// Output position x is the sum over t of weights[x * taps + t] * input[index[x * taps + t]], or the
// extrapolation value.
struct AxisPlan {
  size_t taps = 1;
  std::vector<int64_t> index;
  std::vector<float> weights;
  std::vector<bool> outside;

  int64_t size() const { return static_cast<int64_t>(outside.size()); }
  bool anything_outside() const {
    return std::find(outside.begin(), outside.end(), true) != outside.end();
  }
};

struct AxisGeometry {
  int64_t in, out;
  double scale;
  double roi_begin = 0, roi_end = 1;
};

double InputCoordinate(const ResizeMode& mode, const AxisGeometry& g, int64_t x) {
  const auto position = static_cast<double>(x), in = static_cast<double>(g.in);
  const double out = g.scale * in;  // the extent before rounding
  if (mode.coordinates == "align_corners") {
    return out == 1 ? 0.0 : position * (in - 1) / (out - 1);
  }
  if (mode.coordinates == "asymmetric") return position / g.scale;
  if (mode.coordinates == "tf_half_pixel_for_nn") return (position + 0.5) / g.scale;
  if (mode.coordinates == "pytorch_half_pixel" && out == 1) return -0.5;
  if (mode.coordinates == "tf_crop_and_resize") {
    const double span = (g.roi_end - g.roi_begin) * (in - 1);
    const double begin = g.roi_begin * (in - 1);
    return out == 1 ? begin + span / 2 : begin + position * span / (out - 1);
  }
  if (mode.coordinates == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(g.out) / out;
    return in / 2 * (1 - adjustment) + (position + 0.5) / g.scale - 0.5;
  }
  return (position + 0.5) / g.scale - 0.5;
}

int64_t Nearest(std::string_view mode, double x) {
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(x + 0.5));
  if (mode == "floor") return static_cast<int64_t>(std::floor(x));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  return static_cast<int64_t>(std::ceil(x - 0.5));  // round_prefer_floor
}

// The interpolation kernel at a distance from the sampled point (Keys, 1981, for cubic).
double KernelAt(const ResizeMode& mode, double distance) {
  const double x = std::fabs(distance);
  if (mode.interpolation == Interpolation::kLinear) return std::max(0.0, 1 - x);
  const double a = mode.cubic_a;
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0.0;
}

AxisPlan PlanAxis(const ResizeMode& mode, const AxisGeometry& g) {
  AxisPlan plan;
  if (g.out == 0) return plan;
  const bool nearest = mode.interpolation == Interpolation::kNearest;
  const double shrink = mode.antialias ? std::min(g.scale, 1.0) : 1.0;
  const double radius = (mode.interpolation == Interpolation::kCubic ? 2 : 1) / shrink;
  const auto first = static_cast<int64_t>(std::floor(-radius)) + 1;
  if (!nearest) plan.taps = static_cast<size_t>(2 - 2 * first);
  for (int64_t x = 0; x < g.out; ++x) {
    // Infinite regions of interest and tiny scales lead far away from any element.
    constexpr double kFar = 1e15;
    const double exact = InputCoordinate(mode, g, x);
    const double at = exact > -kFar ? std::min(exact, kFar) : -kFar;
    plan.outside.push_back(mode.coordinates == "tf_crop_and_resize" &&
                           (at < 0 || at > static_cast<double>(g.in - 1)));
    if (nearest) {
      const std::string_view outwards = g.scale < 1 ? "ceil" : "floor";
      const std::string_view rounding = mode.nearest == "outwards" ? outwards : mode.nearest;
      plan.index.push_back(std::clamp<int64_t>(Nearest(rounding, at), 0, g.in - 1));
      plan.weights.push_back(1.0f);
      continue;
    }
    const auto base = static_cast<int64_t>(std::ceil(at)) - 1;  // left of the point, never on it
    double sum = 0;
    std::vector<double> weights;
    for (size_t t = 0; t < plan.taps; ++t) {
      const int64_t position = base + first + static_cast<int64_t>(t);
      double weight = KernelAt(mode, (static_cast<double>(position) - at) * shrink);
      if (mode.exclude_outside && (position < 0 || position >= g.in)) weight = 0;
      weights.push_back(weight);
      sum += weight;
      plan.index.push_back(std::clamp<int64_t>(position, 0, g.in - 1));
    }
    for (const double weight : weights) plan.weights.push_back(static_cast<float>(weight / sum));
  }
  return plan;
}

// Interpolates one axis: in[outer, extent, inner] -> out[outer, plan size, inner].
template <typename T>
void ResizeAxis(const AxisPlan& plan, T extrapolation, const T* in, T* out, int64_t outer,
                int64_t extent, int64_t inner) {
  if (inner == 1 && plan.taps == 1 && !plan.anything_outside()) {  // only picks elements
    for (int64_t row = 0; row < outer; ++row, in += extent, out += plan.size()) {
      for (size_t x = 0; x < plan.index.size(); ++x) out[x] = in[plan.index[x]];
    }
    return;
  }
  for (int64_t row = 0; row < outer; ++row) {
    const T* base = in + row * extent * inner;
    for (int64_t x = 0; x < plan.size(); ++x, out += inner) {
      const auto at = static_cast<size_t>(x);
      if (plan.outside[at]) {
        std::fill_n(out, inner, extrapolation);
        continue;
      }
      for (size_t t = at * plan.taps; t < (at + 1) * plan.taps; ++t) {
        const T* from = base + plan.index[t] * inner;
        const bool begins = t == at * plan.taps;
        if constexpr (std::is_floating_point_v<T>) {
          const T weight = static_cast<T>(plan.weights[t]);
          if (begins && weight == T(1) && plan.taps == 1) {
            std::copy_n(from, inner, out);
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
  }
}

struct Plan {
  Shape in;
  std::vector<std::pair<int, AxisPlan>> axes;
  int64_t buffer = 0;  // elements of each of two intermediate images
  double extrapolation = 0;
};

template <typename T>
void Run(const Plan& plan, const T* from, T* target, T* scratch) {
  Shape current = plan.in;
  if (plan.axes.empty()) std::copy_n(from, plan.in.ElementCount(), target);
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    const auto& [axis, axis_plan] = plan.axes[i];
    T* to =
        i + 1 == plan.axes.size() ? target : scratch + static_cast<int64_t>(i % 2) * plan.buffer;
    T extrapolation{};
    if constexpr (std::is_integral_v<T>) extrapolation = Truncated<T>(plan.extrapolation);
    if constexpr (std::is_floating_point_v<T>) extrapolation = static_cast<T>(plan.extrapolation);
    ResizeAxis(axis_plan, extrapolation, from, to, current.ElementCount(0, axis), current[axis],
               current.ElementCount(axis + 1, current.rank()));
    current[axis] = axis_plan.size();
    from = to;
  }
}

Result<ResizeMode> ModeOf(const Node& node) {
  const Attributes& a = node.attributes;
  const std::string name = a.String("mode", "nearest");
  ResizeMode mode;
  if (name == "nearest") {
    mode.interpolation = Interpolation::kNearest;
  } else if (name == "linear" || name == "bilinear") {
    mode.interpolation = Interpolation::kLinear;
  } else if (name == "cubic") {
    mode.interpolation = Interpolation::kCubic;
  } else {
    return InvalidArgument(StrCat(Describe(node), ": unknown mode '", name, "'"));
  }
  // Versions before 11 have the asymmetric coordinates and round away from the image's middle: down
  // when enlarging, up when shrinking.
  const bool old = node.op_type == "Upsample" || node.since_version < 11;
  mode.coordinates = old ? "asymmetric" : a.String("coordinate_transformation_mode", "half_pixel");
  mode.nearest = old ? "outwards" : a.String("nearest_mode", "round_prefer_floor");
  mode.antialias = a.Int("antialias", 0) != 0;
  mode.exclude_outside = a.Int("exclude_outside", 0) != 0;
  mode.cubic_a = static_cast<double>(a.Float("cubic_coeff_a", -0.75f));
  mode.extrapolation = static_cast<double>(a.Float("extrapolation_value", 0));
  return mode;
}

// Operands other than the image must be known before the output's shape is.
Result<ResizeRequest> RequestOf(const PrepareContext& context) {
  ResizeRequest request;
  const size_t operand = ResizeScalesOperand(context.node);
  const auto value = [&](size_t i) -> const Tensor* {
    return context.HasInput(i) ? context.inputs[i].value : nullptr;
  };
  if (const Tensor* scales = value(operand); scales != nullptr) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor doubles, Converted(*scales, DataType::kDouble));
    const auto elements = doubles.elements<double>();
    request.scales.assign(elements.begin(), elements.end());
  }
  if (const Tensor* sizes = value(3); sizes != nullptr && sizes->type() == DataType::kInt64) {
    const auto elements = sizes->elements<int64_t>();
    request.sizes.assign(elements.begin(), elements.end());
  }
  return request;
}

// How many weights the axis needs; scales that follow from the sizes need some 4 * (in + out).
Status CheckWeights(const Node& node, const ResizeMode& mode, const AxisGeometry& g) {
  constexpr double kMost = 1 << 25;
  const double taps = mode.interpolation == Interpolation::kNearest  ? 1
                      : mode.interpolation == Interpolation::kLinear ? 2
                                                                     : 4;
  const double shrink = mode.antialias && g.out > 0 ? std::min(g.scale, 1.0) : 1.0;
  if (static_cast<double>(g.out) * (taps / shrink + 2) <= kMost) return Status::Ok();
  return ResourceExhausted(
      StrCat(Describe(node), ": too many weights to make ", g.out, " positions of ", g.in));
}

Result<Plan> MakePlan(const ResizeMode& mode, const PrepareContext& context) {
  const Node& node = context.node;
  Plan plan;
  plan.in = context.InputShape(0);
  plan.extrapolation = mode.extrapolation;
  ONNXD_ASSIGN_OR_RETURN(const ResizeRequest request, RequestOf(context));
  ONNXD_ASSIGN_OR_RETURN(const ResizeSizes sizes, SizesOfResize(node, plan.in.dims(), request));
  const Shape out(sizes.extents);
  if (out.ElementCount() > 0 && plan.in.ElementCount() == 0) {
    return InvalidArgument(StrCat(Describe(node), ": the input is empty"));
  }
  std::vector<double> roi(2 * sizes.extents.size(), 0.0);
  std::fill(roi.begin() + plan.in.rank(), roi.end(), 1.0);
  if (mode.coordinates == "tf_crop_and_resize") {
    const Tensor* given = context.HasInput(1) ? context.inputs[1].value : nullptr;
    if (given == nullptr) return FailedPrecondition("the roi is not known yet");
    ONNXD_ASSIGN_OR_RETURN(const auto axes, ResizeAxes(node, plan.in.rank()));
    ONNXD_ASSIGN_OR_RETURN(const Tensor doubles, Converted(*given, DataType::kDouble));
    const auto elements = doubles.elements<double>();
    if (elements.size() != 2 * axes.size()) {
      return InvalidArgument(StrCat(Describe(node), ": roi has ", elements.size(), " entries"));
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto axis = static_cast<size_t>(axes[i]);
      roi[axis] = elements[i];
      roi[axis + sizes.extents.size()] = elements[i + axes.size()];
    }
  }
  Shape current = plan.in;
  for (int axis = 0; axis < plan.in.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    const AxisGeometry g{plan.in[axis], out[axis], sizes.scales[at], roi[at],
                         roi[at + sizes.extents.size()]};
    const bool whole = g.roi_begin == 0 && g.roi_end == 1;
    if (g.out == g.in && g.scale == 1.0 && whole) continue;
    ONNXD_RETURN_IF_ERROR(CheckWeights(node, mode, g));
    plan.axes.emplace_back(axis, PlanAxis(mode, g));
    current[axis] = g.out;
    plan.buffer = std::max(plan.buffer, current.ElementCount());
  }
  plan.buffer = plan.axes.size() > 1 ? (plan.buffer + 15) / 16 * 16 : 0;
  return plan;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeResize(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  ONNXD_ASSIGN_OR_RETURN(const ResizeMode mode, ModeOf(info.node));
  const bool moves =
      mode.interpolation == Interpolation::kNearest && mode.coordinates != "tf_crop_and_resize";
  const bool through_float = !moves && IsInteger(type) && IsMovable(type);
  if (!IsMovable(type) || (!moves && !through_float && !IsFloatOrDouble(type))) {
    return DeclineType(info.node.op_type, type);
  }
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) {
      return FailedPrecondition("the sizes are not known yet");
    }
    ONNXD_ASSIGN_OR_RETURN(Plan made, MakePlan(mode, context));
    const auto plan = std::make_shared<const Plan>(std::move(made));
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
        Run<float>(*plan, in, out, out + out_floats);
        ConvertElements(DataType::kFloat, out, type, k.output<void>(0), out_count);
        return Status::Ok();
      };
      return prepared;
    }
    prepared.scratch_bytes = static_cast<size_t>(2 * plan->buffer * width);
    prepared.compute = [=](const KernelContext& k) {
      const auto run = [&]<typename T>() {
        Run<T>(*plan, k.input<T>(0), k.output<T>(0), k.scratch<T>());
      };
      if (!DispatchFloat(type, run)) DispatchWidth(type, run);
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
