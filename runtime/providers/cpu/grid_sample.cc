// GridSample-16 to -22 and AffineGrid-20.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/sampling.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

enum class Padding { kZeros, kBorder, kReflection };

struct SampleMode {
  int taps;  // 1: nearest, 2: linear, 4: cubic
  Padding padding;
  bool align_corners;
};

Result<SampleMode> ModeOf(const Node& node) {
  const std::string name = node.attributes.String("mode", "linear");
  const std::string padding = node.attributes.String("padding_mode", "zeros");
  SampleMode mode{};
  mode.taps = name == "nearest" ? 1 : name == "cubic" || name == "bicubic" ? 4 : 2;
  mode.padding = padding == "border"       ? Padding::kBorder
                 : padding == "reflection" ? Padding::kReflection
                                           : Padding::kZeros;
  mode.align_corners = node.attributes.Int("align_corners", 0) != 0;
  if (mode.taps == 2 && name != "linear" && name != "bilinear") {
    return InvalidArgument(StrCat(Describe(node), ": unknown mode '", name, "'"));
  }
  return mode;
}

// Mirrors x at the borders until it lies between them.
double Reflect(double x, double low, double high) {
  const double span = high - low;
  if (span <= 0) return low;
  const double distance = x < low ? low - x : x - high;
  if (distance <= 0) return x;
  const double turns = std::floor(distance / span), rest = distance - turns * span;
  const bool even = std::fmod(turns, 2) == 0;
  if (x < low) return even ? low + rest : high - rest;
  return even ? high - rest : low + rest;
}

// Up to four positions along one axis with their weights; position -1 reads zero.
struct AxisTaps {
  std::array<int64_t, 4> at{};
  std::array<double, 4> weights{};
};

int64_t PadPosition(const SampleMode& mode, double position, int64_t extent) {
  const auto last = static_cast<double>(extent - 1);
  if (position >= 0 && position <= last) return static_cast<int64_t>(position);
  switch (mode.padding) {
    case Padding::kZeros:
      return -1;
    case Padding::kBorder:
      return position < 0 ? 0 : extent - 1;
    default: {
      const double low = mode.align_corners ? 0.0 : -0.5;
      const double high = mode.align_corners ? last : last + 0.5;
      return std::clamp<int64_t>(static_cast<int64_t>(Reflect(position, low, high)), 0, extent - 1);
    }
  }
}

AxisTaps TapsOf(const SampleMode& mode, double normalized, int64_t extent) {
  const auto length = static_cast<double>(extent);
  double x = mode.align_corners ? (normalized + 1) / 2 * (length - 1)
                                : ((normalized + 1) * length - 1) / 2;
  x = static_cast<float>(x);
  AxisTaps taps;
  if (!std::isfinite(x)) x = -2 * length;
  x = std::clamp(x, -1e12, 1e12);
  if (mode.taps == 1) {
    taps.at[0] = PadPosition(mode, std::nearbyint(x), extent);
    taps.weights[0] = 1;
    return taps;
  }
  const double base = std::floor(x), f = x - base;
  const int first = mode.taps == 2 ? 0 : -1;
  for (int t = 0; t < mode.taps; ++t) {
    taps.at[static_cast<size_t>(t)] = PadPosition(mode, base + first + t, extent);
  }
  if (mode.taps == 2) {
    taps.weights = {1 - f, f, 0, 0};
    return taps;
  }
  constexpr double a = -0.75;  // Keys, 1981
  const auto outer = [&](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  const auto inner = [&](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  taps.weights = {outer(f + 1), inner(f), inner(1 - f), outer(2 - f)};
  return taps;
}

// The taps of all axes, outermost first, `count` of each.
template <typename T>
void AddTaps(std::span<const AxisTaps> taps, std::span<const int64_t> extents, size_t count,
             WeightedPoints<T>& points, int64_t at = 0, double weight = 1) {
  for (size_t t = 0; t < count; ++t) {
    if (taps[0].at[t] < 0) continue;
    const int64_t own = at * extents[0] + taps[0].at[t];
    const double share = weight * taps[0].weights[t];
    if (taps.size() == 1) {
      points.AddTap(own, share);
    } else {
      AddTaps(taps.subspan(1), extents.subspan(1), count, points, own, share);
    }
  }
}

template <typename T>
Result<Values> GridSample(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const SampleMode mode, ModeOf(node));
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const Shape& grid_shape = inputs[1].tensor().shape();
  const int axes = shape.rank() - 2;
  if (axes < 1 || grid_shape.rank() != shape.rank() || grid_shape[0] != shape[0] ||
      grid_shape[axes + 1] != axes) {
    return InvalidArgument(StrCat(Describe(node), ": grid of shape ", grid_shape.ToString(),
                                  " does not fit X of shape ", shape.ToString()));
  }
  const std::vector<double> grid = ElementsAs<double>(inputs[1].tensor());
  const std::vector<int64_t> extents(shape.begin() + 2, shape.end());
  const int64_t plane = shape.ElementCount(2, shape.rank()), channels = shape[1];
  const int64_t points = grid_shape.ElementCount(1, axes + 1);
  std::vector<int64_t> dims = {shape[0], channels};
  dims.insert(dims.end(), grid_shape.begin() + 1, grid_shape.end() - 1);
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), Shape(dims)));
  if (plane == 0 && out.ElementCount() > 0) {
    return InvalidArgument(StrCat(Describe(node), ": X is empty"));
  }
  constexpr int64_t kTogether = 256;
  std::vector<AxisTaps> taps(static_cast<size_t>(axes));
  WeightedPoints<T> some;
  for (int64_t b = 0; b < shape[0]; ++b) {
    SampledImage<T> image(x.data<T>() + b * channels * plane, channels, plane, points);
    for (int64_t first = 0; first < points; first += some.size()) {
      some.Clear();
      for (int64_t p = first; p < std::min(points, first + kTogether); ++p) {
        for (int axis = 0; axis < axes; ++axis) {
          // Coordinates come innermost axis first.
          const auto at = static_cast<size_t>((b * points + p) * axes + axes - 1 - axis);
          taps[static_cast<size_t>(axis)] =
              TapsOf(mode, grid[at], extents[static_cast<size_t>(axis)]);
        }
        AddTaps<T>(taps, extents, static_cast<size_t>(mode.taps), some);
        some.EndPoint();
      }
      image.Sample(some, out.mutable_data<T>() + b * channels * points + first, points);
    }
  }
  return Values{std::move(out)};
}

Result<Values> AffineGrid(const Node& node, std::span<const Value> inputs) {
  const Tensor& theta = inputs[0].tensor();
  const auto size = ElementsAs<int64_t>(inputs[1].tensor());
  const bool align = node.attributes.Int("align_corners", 0) != 0;
  const auto axes = static_cast<int64_t>(size.size()) - 2;
  if ((axes != 2 && axes != 3) || !(theta.shape() == Shape{size[0], axes, axes + 1})) {
    return InvalidArgument(StrCat(Describe(node), ": theta of shape ", theta.shape().ToString(),
                                  " does not fit the size"));
  }
  std::vector<int64_t> dims = {size[0]};
  dims.insert(dims.end(), size.begin() + 2, size.end());
  const Shape points_shape(std::vector<int64_t>(dims.begin() + 1, dims.end()));
  dims.push_back(axes);
  const Shape shape(dims);
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  const std::vector<double> matrix = ElementsAs<double>(theta);
  const std::vector<int64_t> strides = DenseStrides(points_shape);
  std::vector<double> out;
  for (int64_t b = 0; b < size[0]; ++b) {
    for (int64_t p = 0; p < points_shape.ElementCount(); ++p) {
      std::vector<double> point(static_cast<size_t>(axes) + 1, 1.0);
      for (int64_t axis = 0; axis < axes; ++axis) {
        const auto extent = static_cast<double>(points_shape[static_cast<int>(axis)]);
        const auto at = static_cast<double>(p / strides[static_cast<size_t>(axis)] %
                                            points_shape[static_cast<int>(axis)]);
        const double aligned = extent > 1 ? -1 + 2 * at / (extent - 1) : 0.0;
        point[static_cast<size_t>(axes - 1 - axis)] = align ? aligned : (2 * at + 1) / extent - 1;
      }
      for (int64_t row = 0; row < axes; ++row) {
        double sum = 0;
        for (int64_t i = 0; i <= axes; ++i) {
          sum += matrix[static_cast<size_t>((b * axes + row) * (axes + 1) + i)] *
                 point[static_cast<size_t>(i)];
        }
        out.push_back(sum);
      }
    }
  }
  return OneValue(TensorFrom(theta.type(), shape, out));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGridSample(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kDouble) return MakeEagerKernel(GridSample<double>);
  if (info.InputType(0) == DataType::kFloat) return MakeEagerKernel(GridSample<float>);
  return DeclineType("GridSample", info.InputType(0));
}

Result<std::unique_ptr<Kernel>> MakeAffineGrid(const KernelInfo& info) {
  if (!IsFloatOrDouble(info.InputType(0))) return DeclineType("AffineGrid", info.InputType(0));
  return MakeEagerKernel(AffineGrid);
}

}  // namespace onnxd
