// Softmax, LogSoftmax, Hardmax. Before opset 13 the input is seen as a matrix cut at the axis.
#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/axis.h"
#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/providers/gpu/row_kernels.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
#define AT(i) (base + (i) * inner)
#define VALUE(i) ((ACC)X_GET(in, AT(i)))

// A group of lanes for a row: [outer, extent, inner] along its second axis.
KERNEL softmax_by_group(GLOBAL const X* in, GLOBAL X* out, i64 rows, i64 extent, i64 inner) {
  LOCAL ACC partial[ROW_LANES];
  const i64 row = GROUP(0);
  const i64 base = row / inner * extent * inner + row % inner;
  ACC largest = -INFINITY_F32;
  for (i64 i = LANE(0); i < extent; i += ROW_LANES) largest = LARGER(largest, VALUE(i));
  partial[LANE(0)] = largest;
  GROUP_REDUCE(partial, LARGER)
  largest = partial[0];
  BARRIER();
  ACC total = 0;
  for (i64 i = LANE(0); i < extent; i += ROW_LANES) total += exp(VALUE(i) - largest);
  partial[LANE(0)] = total;
  GROUP_REDUCE(partial, PLUS)
  total = partial[0];
  for (i64 i = LANE(0); i < extent; i += ROW_LANES) X_PUT(out, AT(i), RESULT(VALUE(i)));
}

KERNEL softmax_by_lane(GLOBAL const X* in, GLOBAL X* out, i64 rows, i64 extent, i64 inner) {
  const i64 row = GLOBAL_INDEX;
  if (row >= rows) return;
  const i64 base = row / inner * extent * inner + row % inner;
  ACC largest = -INFINITY_F32, total = 0;
  for (i64 i = 0; i < extent; ++i) largest = LARGER(largest, VALUE(i));
  for (i64 i = 0; i < extent; ++i) total += exp(VALUE(i) - largest);
  for (i64 i = 0; i < extent; ++i) X_PUT(out, AT(i), RESULT(VALUE(i)));
}

// One at the first of the largest, zero elsewhere.
KERNEL hardmax(GLOBAL const X* in, GLOBAL X* out, i64 rows, i64 extent, i64 inner) {
  const i64 row = GLOBAL_INDEX;
  if (row >= rows) return;
  const i64 base = row / inner * extent * inner + row % inner;
  i64 best = 0;
  for (i64 i = 1; i < extent; ++i) {
    if (VALUE(i) > VALUE(best)) best = i;
  }
  for (i64 i = 0; i < extent; ++i) X_PUT(out, AT(i), i == best ? (ACC)1 : (ACC)0);
}
)";

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuSoftmax(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsDeviceType(type) || !IsFloatingPoint(type)) return DeclineOnDevice(info, type);
  const bool logarithm = info.node.op_type == "LogSoftmax", hard = info.node.op_type == "Hardmax";
  const bool flatten = info.node.since_version < 13;
  const int64_t axis = info.node.attributes.Int("axis", flatten ? 1 : -1);
  const std::string source =
      StrCat(DefineType("X", type), Define("ACC", ComputeName(type)), "#define RESULT(x) ",
             logarithm ? "((x) - largest - log(total))" : "(exp((x) - largest) / total)", "\n",
             kRowFunctions, kSource);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    AxisView view{shape.ElementCount(), 1, 1};
    if (shape.rank() > 0 && axis != shape.rank()) {
      ONNXD_ASSIGN_OR_RETURN(view, ViewAt(shape, axis));
      if (flatten) view = {view.outer, view.extent * view.inner, 1};
    }
    const int64_t rows = view.rows();
    if (rows * view.extent == 0) return NothingToDo();
    const bool by_group = !hard && view.extent >= 64;
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                           device.FindKernel(source, hard       ? "hardmax"
                                                     : by_group ? "softmax_by_group"
                                                                : "softmax_by_lane"));
    LaunchGrid grid = LaunchGrid::Over(rows);
    if (by_group) grid.groups[0] = static_cast<uint32_t>(rows);
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0));
      arguments.Value(rows).Value(view.extent).Value(view.inner);
      return Launch(k, kernel, grid, arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
