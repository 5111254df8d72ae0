// LRN and LpNormalization: a lane for an element, or for a row.
#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/axis.h"
#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
// in [images, channels, plane].
KERNEL local_response(GLOBAL const X* in, GLOBAL X* out, i64 count, i64 channels, i64 plane,
                      i64 size, f32 alpha, f32 beta, f32 bias) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const i64 channel = i / plane % channels, base = i - channel * plane;
  i64 first = channel - (size - 1) / 2, last = channel + size / 2;
  if (first < 0) first = 0;
  if (last > channels - 1) last = channels - 1;
  ACC squares = 0;
  for (i64 j = first; j <= last; ++j) {
    const ACC value = (ACC)X_GET(in, base + j * plane);
    squares += value * value;
  }
  const ACC scale = pow((ACC)bias + (ACC)alpha / (ACC)size * squares, (ACC)beta);
  X_PUT(out, i, (ACC)X_GET(in, i) / scale);
}

// in [outer, extent, inner].
KERNEL norm_rows(GLOBAL const X* in, GLOBAL X* out, i64 rows, i64 extent, i64 inner) {
  const i64 row = GLOBAL_INDEX;
  if (row >= rows) return;
  const i64 base = row / inner * extent * inner + row % inner;
  ACC norm = 0;
  for (i64 i = 0; i < extent; ++i) {
    const ACC value = (ACC)X_GET(in, base + i * inner);
    norm += ABSOLUTE ? fabs(value) : value * value;
  }
  if (!ABSOLUTE) norm = sqrt(norm);
  for (i64 i = 0; i < extent; ++i) {
    const ACC value = (ACC)X_GET(in, base + i * inner);
    X_PUT(out, base + i * inner, norm == (ACC)0 ? (ACC)0 : value / norm);
  }
}
)";

std::string SourceOf(DataType type, bool absolute) {
  return StrCat(DefineType("X", type), Define("ACC", ComputeName(type)),
                Define("ABSOLUTE", absolute ? 1 : 0), kSource);
}

bool IsFloat(DataType type) { return IsDeviceType(type) && IsFloatingPoint(type); }

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuLrn(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsFloat(type)) return DeclineOnDevice(info, type);
  const Attributes& attributes = info.node.attributes;
  const int64_t size = attributes.Int("size", 1);
  const float alpha = attributes.Float("alpha", 1e-4f), beta = attributes.Float("beta", 0.75f);
  const float bias = attributes.Float("bias", 1);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    if (shape.rank() < 2 || size < 1) {
      return InvalidArgument(StrCat(Describe(context.node), ": input of shape ", shape.ToString()));
    }
    const int64_t count = shape.ElementCount(), channels = shape[1];
    const int64_t plane = shape.ElementCount(2, shape.rank());
    if (count == 0) return NothingToDo();
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                           device.FindKernel(SourceOf(type, false), "local_response"));
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0)).Value(count).Value(channels);
      arguments.Value(plane).Value(size).Value(alpha).Value(beta).Value(bias);
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuLpNormalization(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsFloat(type)) return DeclineOnDevice(info, type);
  const bool absolute = info.node.attributes.Int("p", 2) == 1;
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const AxisView view,
                           ViewAt(context.InputShape(0), context.node.attributes.Int("axis", -1)));
    const int64_t rows = view.rows();
    if (rows * view.extent == 0) return NothingToDo();
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                           device.FindKernel(SourceOf(type, absolute), "norm_rows"));
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0));
      arguments.Value(rows).Value(view.extent).Value(view.inner);
      return Launch(k, kernel, LaunchGrid::Over(rows), arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
