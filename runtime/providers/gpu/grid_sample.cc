// GridSample-16 to -22, of images with one to three spatial axes. The CPU's, step by step: the
// coordinate is rounded to f32 before its taps are found.
#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
// Mirrors x at the borders until it lies between them.
FUNCTION f32 reflected(f32 x, f32 low, f32 high) {
  const f32 span = high - low;
  if (span <= 0.0f) return low;
  const f32 distance = x < low ? low - x : x - high;
  if (distance <= 0.0f) return x;
  const f32 turns = floor(distance / span), rest = distance - turns * span;
  const bool even = turns * 0.5f == floor(turns * 0.5f);
  if (x < low) return even ? low + rest : high - rest;
  return even ? high - rest : low + rest;
}

// Where a position reads; -1: zero.
FUNCTION i64 padded(f32 position, i64 extent) {
  const f32 last = (f32)(extent - 1);
  if (position >= 0.0f && position <= last) return (i64)position;
#if PADDING == 0
  return -1;
#elif PADDING == 1
  return position < 0.0f ? 0 : extent - 1;
#else
  const f32 low = ALIGNED ? 0.0f : -0.5f, high = ALIGNED ? last : last + 0.5f;
  const i64 at = (i64)reflected(position, low, high);
  return at < 0 ? 0 : at >= extent ? extent - 1 : at;
#endif
}

FUNCTION f32 cubic_outer(f32 d) { return ((-0.75f * d + 3.75f) * d - 6.0f) * d + 3.0f; }
FUNCTION f32 cubic_inner(f32 d) { return (1.25f * d - 2.25f) * d * d + 1.0f; }

KERNEL grid_sample(GLOBAL const X* x, GLOBAL const G* grid, GLOBAL X* out, i64 count, i64 points,
                   i64 channels, i64 plane, Dims extents) {
  const i64 index = GLOBAL_INDEX;
  if (index >= count) return;
  const i64 point = index % points, lane = index / points, image = lane / channels;
  i64 at[AXES][TAPS];
  f32 weights[AXES][TAPS];
  for (i32 axis = 0; axis < AXES; ++axis) {
    const i64 extent = extents.at[axis];
    // Coordinates come innermost axis first.
    const f32 normalized = (f32)G_GET(grid, (image * points + point) * AXES + AXES - 1 - axis);
    f32 position = ALIGNED ? (normalized + 1.0f) / 2.0f * (f32)(extent - 1)
                           : ((normalized + 1.0f) * (f32)extent - 1.0f) / 2.0f;
    if (!(position - position == 0.0f)) position = -2.0f * (f32)extent;
    position = fmin(fmax(position, -1e12f), 1e12f);
#if TAPS == 1
    at[axis][0] = padded(rint(position), extent);
    weights[axis][0] = 1.0f;
#else
    const f32 base = floor(position), f = position - base;
    for (i32 t = 0; t < TAPS; ++t) at[axis][t] = padded(base + (f32)(t - TAPS / 2 + 1), extent);
#if TAPS == 2
    weights[axis][0] = 1.0f - f;
    weights[axis][1] = f;
#else
    weights[axis][0] = cubic_outer(f + 1.0f);
    weights[axis][1] = cubic_inner(f);
    weights[axis][2] = cubic_inner(1.0f - f);
    weights[axis][3] = cubic_outer(2.0f - f);
#endif
#endif
  }
  f32 sum = 0.0f;
  for (i32 combination = 0; combination < COMBINATIONS; ++combination) {
    i32 rest = combination;
    i64 offset = 0;
    f32 weight = 1.0f;
    bool outside = false;
    for (i32 axis = 0; axis < AXES; ++axis) {
      const i32 t = rest % TAPS;
      rest /= TAPS;
      outside = outside || at[axis][t] < 0;
      offset = offset * extents.at[axis] + at[axis][t];
      weight *= weights[axis][t];
    }
    if (!outside) sum += weight * (f32)X_GET(x, lane * plane + offset);
  }
  X_PUT(out, index, sum);
}
)";

// Taps of an axis by the mode's name; 0 for one that ONNX does not know.
int64_t TapsOf(const std::string& mode) {
  if (mode == "nearest") return 1;
  if (mode == "linear" || mode == "bilinear") return 2;
  return mode == "cubic" || mode == "bicubic" ? 4 : 0;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuGridSample(const KernelInfo& info, GpuDevice& device) {
  const auto computes = [](DataType type) {
    return IsDeviceType(type) && IsFloatingPoint(type) && type != DataType::kDouble;
  };
  for (const size_t i : {0, 1}) {
    if (!computes(info.InputType(i))) return DeclineOnDevice(info, info.InputType(i));
  }
  const Attributes& attributes = info.node.attributes;
  const std::string mode = attributes.String("mode", "linear");
  const std::string padding = attributes.String("padding_mode", "zeros");
  const int64_t taps = TapsOf(mode);
  if (taps == 0) return Unimplemented(StrCat("mode '", mode, "'"));
  const std::string common = StrCat(
      DefineType("X", info.InputType(0)), DefineType("G", info.InputType(1)), Define("TAPS", taps),
      Define("PADDING", padding == "border"       ? 1
                        : padding == "reflection" ? 2
                                                  : 0),
      Define("ALIGNED", attributes.Int("align_corners", 0) != 0 ? 1 : 0));
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& x = context.InputShape(0);
    const Shape& grid = context.InputShape(1);
    const int axes = x.rank() - 2;
    if (axes < 1 || grid.rank() != x.rank() || grid[0] != x[0] || grid[axes + 1] != axes) {
      return InvalidArgument(StrCat(Describe(context.node), ": grid of shape ", grid.ToString(),
                                    " does not fit X of shape ", x.ToString()));
    }
    if (axes > 3) return Unimplemented("GridSample of more than three axes");
    const int64_t count = context.OutputShape(0).ElementCount();
    if (count == 0) return NothingToDo();
    const int64_t plane = x.ElementCount(2, x.rank()), channels = x[1];
    if (plane == 0) return InvalidArgument(StrCat(Describe(context.node), ": X is empty"));
    const int64_t points = grid.ElementCount(1, axes + 1);
    int64_t combinations = 1;
    DeviceDims extents;
    for (int axis = 0; axis < axes; ++axis) {
      extents.values[static_cast<size_t>(axis)] = x[axis + 2];
      combinations *= taps;
    }
    const std::string source = StrCat(common, Define("AXES", int64_t{axes}),
                                      Define("COMBINATIONS", combinations), kSource);
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "grid_sample"));
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(1)).Pointer(k.output<void>(0));
      arguments.Value(count).Value(points).Value(channels).Value(plane).Value(extents);
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
