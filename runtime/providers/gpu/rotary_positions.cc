#include "runtime/ops/rotary_positions.h"

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

// A lane computes a number and its partner.
constexpr std::string_view kSource = R"(
KERNEL turn_halves(GLOBAL const X* x, GLOBAL const X* cosines, GLOBAL const X* sines, GLOBAL X* y,
                   i64 count, i64 pairs, Dims dims, i32 rank, Dims x_strides, Dims cosine_strides,
                   Dims sine_strides) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const i64 row = i / pairs, d = i % pairs;
  i64 rest = row, from = 0, cosine = 0, sine = 0;
  for (i32 axis = rank - 1; axis >= 0; --axis) {
    const i64 at = rest % dims.at[axis];
    rest /= dims.at[axis];
    from += at * x_strides.at[axis];
    cosine += at * cosine_strides.at[axis];
    sine += at * sine_strides.at[axis];
  }
  const i64 first = INTERLEAVED ? d * 2 : d, second = INTERLEAVED ? first + 1 : d + pairs;
  const X_C a = X_GET(x, from + first), b = X_GET(x, from + second);
  const i64 to = row * pairs * 2;
  X_PUT(y, to + first, a * X_GET(cosines, cosine + first) - b * X_GET(sines, sine + first));
  X_PUT(y, to + second, b * X_GET(cosines, cosine + second) + a * X_GET(sines, sine + second));
}
)";

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuRotaryPositions(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsDeviceType(type) || !IsFloatingPoint(type)) return DeclineOnDevice(info, type);
  const bool interleaved = info.node.attributes.Int("interleaved", 0) != 0;
  const std::string source =
      StrCat(DefineType("X", type), Define("INTERLEAVED", interleaved ? 1 : 0), kSource);
  const auto prepare = [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(
        const RotaryRows rows,
        RotaryRowsOf(context.node,
                     {&context.InputShape(0), &context.InputShape(1), &context.InputShape(2)},
                     context.inputs[0].strides, context.OutputShape(0)));
    const int64_t half = rows.size / 2, count = rows.rows * half;
    if (count == 0) return NothingToDo();
    DeviceLoop loop{rows.dims, {rows.strides.begin(), rows.strides.end()}};
    loop.Join();
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims dims, ToDeviceDims(loop.dims));
    std::array<DeviceDims, 3> strides;
    for (size_t i = 0; i < 3; ++i) {
      ONNXD_ASSIGN_OR_RETURN(strides[i], ToDeviceDims(loop.strides[i]));
    }
    const auto rank = static_cast<int32_t>(loop.dims.size());
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "turn_halves"));
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      for (size_t i = 0; i < 3; ++i) arguments.Pointer(k.input<void>(i));
      arguments.Pointer(k.output<void>(0)).Value(count).Value(half).Value(dims).Value(rank);
      for (const DeviceDims& of : strides) arguments.Value(of);
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  };
  return MakeGpuKernel(prepare, {}, {0});
}

}  // namespace onnxd
