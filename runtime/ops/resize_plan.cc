#include "runtime/ops/resize_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "runtime/base/str_cat.h"
#include "runtime/ops/resize.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

struct AxisGeometry {
  int64_t in, out;
  double scale;
  double roi_begin = 0, roi_end = 1;
};

// Computed in T: the nearest element is that of a coordinate in float, as ONNX's reference and
// onnxruntime round it, which decides between two that are as near.
template <typename T>
double InputCoordinate(const ResizeMode& mode, const AxisGeometry& g, int64_t x) {
  const auto position = static_cast<T>(x), in = static_cast<T>(g.in);
  const auto scale = static_cast<T>(g.scale);
  const auto half = static_cast<T>(0.5);
  const T out = scale * in;  // the extent before rounding
  const bool is_one = g.scale * static_cast<double>(g.in) == 1;
  if (mode.coordinates == "align_corners") return is_one ? T(0) : position * (in - 1) / (out - 1);
  if (mode.coordinates == "asymmetric") return position / scale;
  if (mode.coordinates == "tf_half_pixel_for_nn") return (position + half) / scale;
  if (mode.coordinates == "pytorch_half_pixel" && is_one) return -half;
  if (mode.coordinates == "tf_crop_and_resize") {
    const T span = static_cast<T>(g.roi_end - g.roi_begin) * (in - 1);
    const T begin = static_cast<T>(g.roi_begin) * (in - 1);
    return is_one ? begin + span / 2 : begin + position * span / (out - 1);
  }
  if (mode.coordinates == "half_pixel_symmetric") {
    const T adjustment = static_cast<T>(g.out) / out;
    return in / 2 * (1 - adjustment) + (position + half) / scale - half;
  }
  return (position + half) / scale - half;
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
  if (mode.interpolation == ResizeMode::Interpolation::kLinear) return std::max(0.0, 1 - x);
  const double a = mode.cubic_a;
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0.0;
}

ResizeAxisPlan PlanAxis(const ResizeMode& mode, const AxisGeometry& g) {
  ResizeAxisPlan plan;
  if (g.out == 0) return plan;
  const bool nearest = mode.interpolation == ResizeMode::Interpolation::kNearest;
  const double shrink = mode.antialias ? std::min(g.scale, 1.0) : 1.0;
  const double radius = (mode.interpolation == ResizeMode::Interpolation::kCubic ? 2 : 1) / shrink;
  const auto first = static_cast<int64_t>(std::floor(-radius)) + 1;
  if (!nearest) plan.taps = static_cast<size_t>(2 - 2 * first);
  for (int64_t x = 0; x < g.out; ++x) {
    // Infinite regions of interest and tiny scales lead far away from any element.
    constexpr double kFar = 1e15;
    const double exact =
        nearest ? InputCoordinate<float>(mode, g, x) : InputCoordinate<double>(mode, g, x);
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
  plan.doubles = nearest;
  for (int64_t x = 0; x < g.out; ++x) {
    plan.doubles = plan.doubles && plan.index[static_cast<size_t>(x)] == x / 2;
  }
  return plan;
}

const Tensor* At(std::span<const Tensor* const> known, size_t i) {
  return i < known.size() ? known[i] : nullptr;
}

// Operands other than the image must be known before the output's shape is.
Result<ResizeRequest> RequestOf(const Node& node, std::span<const Tensor* const> known) {
  ResizeRequest request;
  const size_t operand = ResizeScalesOperand(node);
  const auto value = [&](size_t i) { return At(known, i); };
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
  const double taps = mode.interpolation == ResizeMode::Interpolation::kNearest  ? 1
                      : mode.interpolation == ResizeMode::Interpolation::kLinear ? 2
                                                                                 : 4;
  const double shrink = mode.antialias && g.out > 0 ? std::min(g.scale, 1.0) : 1.0;
  if (static_cast<double>(g.out) * (taps / shrink + 2) <= kMost) return Status::Ok();
  return ResourceExhausted(
      StrCat(Describe(node), ": too many weights to make ", g.out, " positions of ", g.in));
}

}  // namespace

bool ResizeAxisPlan::anything_outside() const {
  return std::find(outside.begin(), outside.end(), true) != outside.end();
}

Result<ResizeMode> ResizeModeOf(const Node& node) {
  const Attributes& a = node.attributes;
  const std::string name = a.String("mode", "nearest");
  ResizeMode mode;
  if (name == "nearest") {
    mode.interpolation = ResizeMode::Interpolation::kNearest;
  } else if (name == "linear" || name == "bilinear") {
    mode.interpolation = ResizeMode::Interpolation::kLinear;
  } else if (name == "cubic") {
    mode.interpolation = ResizeMode::Interpolation::kCubic;
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

namespace {

// The last axis, whose elements are picked singly, comes before those that make more rows of it,
// else after them.
std::vector<int> AxesInOrder(const Shape& in, const Shape& out) {
  std::vector<int> axes(static_cast<size_t>(in.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  const int last = in.rank() - 1;
  if (last > 0 && out.ElementCount(0, last) > in.ElementCount(0, last)) {
    std::rotate(axes.begin(), axes.end() - 1, axes.end());
  }
  return axes;
}

}  // namespace

Result<ResizePlan> PlanResize(const ResizeMode& mode, const Node& node, const Shape& in,
                              std::span<const Tensor* const> known) {
  ResizePlan plan;
  plan.in = in;
  plan.extrapolation = mode.extrapolation;
  ONNXD_ASSIGN_OR_RETURN(const ResizeRequest request, RequestOf(node, known));
  ONNXD_ASSIGN_OR_RETURN(const ResizeSizes sizes, SizesOfResize(node, plan.in.dims(), request));
  const Shape out(sizes.extents);
  if (out.ElementCount() > 0 && plan.in.ElementCount() == 0) {
    return InvalidArgument(StrCat(Describe(node), ": the input is empty"));
  }
  std::vector<double> roi(2 * sizes.extents.size(), 0.0);
  std::fill(roi.begin() + plan.in.rank(), roi.end(), 1.0);
  if (mode.coordinates == "tf_crop_and_resize") {
    const Tensor* given = At(known, 1);
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
  for (const int axis : AxesInOrder(plan.in, out)) {
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

}  // namespace onnxd
