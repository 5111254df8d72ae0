// ArgMax, ArgMin, TopK, CumSum, ReverseSequence: a lane or a group for a line along an axis.
#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/axis.h"
#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {
namespace {

constexpr std::string_view kArgSource = R"(
KERNEL arg_reduce(GLOBAL const X* in, GLOBAL i64* out, i64 rows, i64 extent, i64 inner) {
  const i64 row = GLOBAL_INDEX;
  if (row >= rows) return;
  const i64 base = row / inner * extent * inner + row % inner;
  i64 best = 0;
  for (i64 i = 1; i < extent; ++i) {
    const X_C x = X_GET(in, base + i * inner), y = X_GET(in, base + best * inner);
    if (BETTER(x, y)) best = i;
  }
  out[row] = best;
}
)";

constexpr std::string_view kCumulativeSource = R"(
KERNEL cumulate(GLOBAL const X* in, GLOBAL X* out, i64 rows, i64 extent, i64 inner) {
  const i64 row = GLOBAL_INDEX;
  if (row >= rows) return;
  const i64 base = row / inner * extent * inner + row % inner;
  X_C total = 0;
  for (i64 i = 0; i < extent; ++i) {
    const i64 at = base + (REVERSE ? extent - 1 - i : i) * inner;
    const X_C x = X_GET(in, at);
    if (EXCLUSIVE) X_PUT(out, at, total);
    total = (X_C)(total + x);
    if (!EXCLUSIVE) X_PUT(out, at, total);
  }
}
)";

// The place of each element among its line's is the number of those that come before it; a number
// that is none counts as the largest, and equals stay in their order.
constexpr std::string_view kTopSource = R"(
FUNCTION i32 comes_before(X_C x, i64 i, X_C y, i64 j) {
  if (x != x || y != y) {
    if ((x != x) == (y != y)) return i < j;
    return LARGEST ? x != x : y != y;
  }
  if (x == y) return i < j;
  return LARGEST ? x > y : x < y;
}

KERNEL top_ranks(GLOBAL const X* in, GLOBAL X* values, GLOBAL i64* indices, i64 rows, i64 extent,
                 i64 inner, i64 wanted, i64 has_values, i64 has_indices) {
  const i64 index = GLOBAL_INDEX;
  if (index >= rows * extent) return;
  const i64 row = index / extent, i = index % extent;
  const i64 base = row / inner * extent * inner + row % inner;
  const X_C x = X_GET(in, base + i * inner);
  i64 rank = 0;
  for (i64 j = 0; j < extent; ++j) {
    rank += j != i && comes_before(X_GET(in, base + j * inner), j, x, i) ? 1 : 0;
  }
  if (rank >= wanted) return;
  const i64 to = (row / inner * wanted + rank) * inner + row % inner;
  if (has_values) X_PUT(values, to, x);
  if (has_indices) indices[to] = i;
}
)";

// Of [outer, inner axis, inner] both first axes are time and batch; a length that is none is
// reported and taken for 0.
constexpr std::string_view kReverseSource = R"(
KERNEL reverse_sequence(GLOBAL const X* in, GLOBAL const i64* lengths, GLOBAL X* out, i64 count,
                        i64 second, i64 inner, i64 steps, GLOBAL u32* failure, u32 step) {
  const i64 index = GLOBAL_INDEX;
  if (index >= count) return;
  const i64 i = index / inner / second, j = index / inner % second;
  const i64 batch = TIME_FIRST ? j : i, time = TIME_FIRST ? i : j;
  i64 length = lengths[batch];
  if (length < 0 || length > steps) {
    RAISE(failure, step, 1u, length);
    length = 0;
  }
  const i64 from = time < length ? length - 1 - time : time;
  const i64 row = TIME_FIRST ? from * second + batch : batch * second + from;
  out[index] = in[row * inner + index % inner];
}
)";

bool IsNumber(DataType type) { return IsDeviceType(type) && type != DataType::kBool; }

// One lane for a line, whose result is output 0.
Result<PreparedKernel> PrepareLines(GpuDevice& device, const std::string& source,
                                    const std::string& name, const AxisView& view) {
  const int64_t rows = view.rows();
  if (rows * view.extent == 0) return NothingToDo();
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, name));
  PreparedKernel prepared;
  prepared.compute = [=](const KernelContext& k) {
    LaunchArguments arguments;
    arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0));
    arguments.Value(rows).Value(view.extent).Value(view.inner);
    return Launch(k, kernel, LaunchGrid::Over(rows), arguments);
  };
  return prepared;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuArgReduce(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineOnDevice(info, type);
  const bool smallest = info.node.op_type == "ArgMin";
  const bool last = info.node.attributes.Int("select_last_index", 0) != 0;
  const std::string source = StrCat(DefineType("X", type), "#define BETTER(x, y) ((x) ",
                                    smallest ? "<" : ">", last ? "=" : "", " (y))\n", kArgSource);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const AxisView view,
                           ViewAt(context.InputShape(0), context.node.attributes.Int("axis", 0)));
    if (view.extent == 0) {
      return InvalidArgument(StrCat(Describe(context.node), ": the axis is empty"));
    }
    return PrepareLines(device, source, "arg_reduce", view);
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuCumSum(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineOnDevice(info, type);
  const std::string source = StrCat(
      DefineType("X", type),
      Define("EXCLUSIVE", info.node.attributes.Int("exclusive", 0) != 0 ? 1 : 0),
      Define("REVERSE", info.node.attributes.Int("reverse", 0) != 0 ? 1 : 0), kCumulativeSource);
  return MakeGpuKernel(
      [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
        ONNXD_ASSIGN_OR_RETURN(const auto axes, KnownInts(context, 1, "", {}));
        if (axes.size() != 1) return InvalidArgument("CumSum needs one axis");
        ONNXD_ASSIGN_OR_RETURN(const AxisView view, ViewAt(context.InputShape(0), axes[0]));
        return PrepareLines(device, source, "cumulate", view);
      },
      {1});
}

Result<std::unique_ptr<Kernel>> MakeGpuTopK(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineOnDevice(info, type);
  const bool largest = info.node.attributes.Int("largest", 1) != 0;
  const std::string source =
      StrCat(DefineType("X", type), Define("LARGEST", largest ? 1 : 0), kTopSource);
  return MakeGpuKernel(
      [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
        const bool has_values = context.HasOutput(0), has_indices = context.HasOutput(1);
        const OperandInfo& output = context.outputs[has_values ? 0 : 1];
        if (output.shape == nullptr) return NeedsValues();
        const int64_t axis = context.node.attributes.Int("axis", -1);
        ONNXD_ASSIGN_OR_RETURN(const AxisView view, ViewAt(context.InputShape(0), axis));
        ONNXD_ASSIGN_OR_RETURN(const AxisView kept, ViewAt(*output.shape, axis));
        const int64_t rows = view.rows(), elements = rows * view.extent;
        if (elements == 0 || kept.extent == 0) return NothingToDo();
        ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "top_ranks"));
        PreparedKernel prepared;
        prepared.compute = [=](const KernelContext& k) {
          LaunchArguments arguments;
          arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0)).Pointer(k.output<void>(1));
          arguments.Value(rows).Value(view.extent).Value(view.inner).Value(kept.extent);
          arguments.Value(int64_t{has_values}).Value(int64_t{has_indices});
          return Launch(k, kernel, LaunchGrid::Over(elements), arguments);
        };
        return prepared;
      },
      {1});
}

Result<std::unique_ptr<Kernel>> MakeGpuReverseSequence(const KernelInfo& info, GpuDevice& device) {
  const DataType moved = MovedAs(info.InputType(0));
  if (moved == DataType::kUndefined) return DeclineOnDevice(info, info.InputType(0));
  const int64_t batch_axis = info.node.attributes.Int("batch_axis", 1);
  const int64_t time_axis = info.node.attributes.Int("time_axis", 0);
  if (batch_axis + time_axis != 1 || batch_axis * time_axis != 0) {
    return Unimplemented("ReverseSequence of other axes than the first two");
  }
  const std::string source =
      StrCat(DefineType("X", moved), Define("TIME_FIRST", time_axis == 0 ? 1 : 0), kReverseSource);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& x = context.InputShape(0);
    if (x.rank() < 2 || context.InputShape(1).ElementCount() != x[static_cast<int>(batch_axis)]) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": axes or lengths do not fit the input"));
    }
    const int64_t count = x.ElementCount(), second = x[1], inner = x.ElementCount(2, x.rank());
    const int64_t steps = x[static_cast<int>(time_axis)];
    if (count == 0) return NothingToDo();
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "reverse_sequence"));
    PreparedKernel prepared;
    prepared.on_failure = [name = Describe(context.node)](const DeviceFailure& failure) {
      return InvalidArgument(StrCat(name, ": length ", failure.value));
    };
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(1)).Pointer(k.output<void>(0));
      arguments.Value(count).Value(second).Value(inner).Value(steps);
      arguments.Pointer(k.stream().failure_word()).Value(k.step());
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
