// Reduce*.
#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/providers/gpu/row_kernels.h"

namespace onnxd {
namespace {

// Where the elements of output o are: at the sum of two patterns of strides.
constexpr std::string_view kSource = R"(
#define ELEMENT(i) ((ACC)X_GET(in, base + offset_of(i, reduced_rank, reduced_dims, reduced_strides)))
#define PARAMETERS \
  GLOBAL const X *in, GLOBAL X *out, i64 outputs, i64 elements, Dims kept_dims, i32 kept_rank, \
      Dims kept_strides, Dims reduced_dims, i32 reduced_rank, Dims reduced_strides

// A group of lanes for an output.
KERNEL reduce_by_group(PARAMETERS) {
  LOCAL ACC partial[ROW_LANES];
  const i64 o = GROUP(0);
  const i64 base = offset_of(o, kept_rank, kept_dims, kept_strides);
  ACC shift = 0;
#ifdef SHIFTED
  shift = -INFINITY_F32;
  for (i64 i = LANE(0); i < elements; i += ROW_LANES) shift = LARGER(shift, ELEMENT(i));
  partial[LANE(0)] = shift;
  GROUP_REDUCE(partial, LARGER)
  shift = partial[0] - partial[0] == 0 ? partial[0] : 0;
  BARRIER();
#endif
  ACC total = INITIAL;
  for (i64 i = LANE(0); i < elements; i += ROW_LANES) total = ACCUMULATE(total, ELEMENT(i));
  partial[LANE(0)] = total;
  GROUP_REDUCE(partial, COMBINE)
  if (LANE(0) == 0) X_PUT(out, o, FINISH(partial[0]));
}

// A lane for an output.
KERNEL reduce_by_lane(PARAMETERS) {
  const i64 o = GLOBAL_INDEX;
  if (o >= outputs) return;
  const i64 base = offset_of(o, kept_rank, kept_dims, kept_strides);
  ACC shift = 0;
#ifdef SHIFTED
  shift = -INFINITY_F32;
  for (i64 i = 0; i < elements; ++i) shift = LARGER(shift, ELEMENT(i));
  shift = shift - shift == 0 ? shift : 0;
#endif
  ACC total = INITIAL;
  for (i64 i = 0; i < elements; ++i) total = ACCUMULATE(total, ELEMENT(i));
  X_PUT(out, o, FINISH(total));
}
)";

// Macros of one operator.
struct Reduction {
  std::string_view initial, accumulate, combine, finish;
  bool shifted = false;
};

constexpr std::string_view kSum = "((a) + (b))";

Reduction ReductionOf(std::string_view op) {
  constexpr std::string_view kSquares = "((a) + (b) * (b))";
  constexpr std::string_view kMax = "((b) > (a) || (b) != (b) ? (b) : (a))";
  constexpr std::string_view kMin = "((b) < (a) || (b) != (b) ? (b) : (a))";
  if (op == "ReduceMean") return {"0", kSum, kSum, "(a) / (ACC)elements"};
  if (op == "ReduceMax") return {"LOWEST", kMax, kMax, "(a)"};
  if (op == "ReduceMin") return {"HIGHEST", kMin, kMin, "(a)"};
  if (op == "ReduceProd") return {"1", "((a) * (b))", "((a) * (b))", "(a)"};
  if (op == "ReduceL1") return {"0", "((a) + ((b) < 0 ? -(b) : (b)))", kSum, "(a)"};
  if (op == "ReduceL2") return {"0", kSquares, kSum, "(ACC)sqrt((ROOT)(a))"};
  if (op == "ReduceSumSquare") return {"0", kSquares, kSum, "(a)"};
  if (op == "ReduceLogSum") return {"0", kSum, kSum, "(ACC)log((ROOT)(a))"};
  if (op == "ReduceLogSumExp") {
    return {"0", "((a) + exp((b) - shift))", kSum, "(log(a) + shift)", true};
  }
  return {"0", kSum, kSum, "(a)"};
}

// The smallest and largest numbers of a type.
std::pair<std::string, std::string> LimitsOf(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return {"-128", "127"};
    case DataType::kInt16:
      return {"-32768", "32767"};
    case DataType::kInt32:
      return {"(-2147483647 - 1)", "2147483647"};
    case DataType::kInt64:
      return {"(-9223372036854775807L - 1L)", "9223372036854775807L"};
    case DataType::kUint8:
    case DataType::kBool:
      return {"0", "255"};
    case DataType::kUint16:
      return {"0", "65535"};
    case DataType::kUint32:
      return {"0", "4294967295u"};
    case DataType::kUint64:
      return {"0", "18446744073709551615UL"};
    default:
      return {"-INFINITY_F32", "INFINITY_F32"};
  }
}

std::string SourceOf(std::string_view op, DataType type) {
  const Reduction reduction = ReductionOf(op);
  const auto [lowest, highest] = LimitsOf(type);
  std::string source = DefineType("X", type);
  source += Define("ACC", ComputeName(type)) + Define("LOWEST", lowest) +
            Define("HIGHEST", highest) + Define("INITIAL", reduction.initial);
  // Roots of integers are taken in double, as those of the CPU are.
  source += Define("ROOT", IsInteger(type) || type == DataType::kDouble ? "f64" : "f32");
  source += StrCat("#define ACCUMULATE(a, b) (ACC)", reduction.accumulate,
                   "\n#define COMBINE(a, b) (ACC)", reduction.combine, "\n#define FINISH(a) (",
                   reduction.finish, ")\n");
  if (reduction.shifted) source += Define("SHIFTED", 1);
  return StrCat(source, kRowFunctions, kOffsetFunction, kSource);
}

struct ReduceLoop {
  DeviceLoop kept{{}, {{}}}, reduced{{}, {{}}};
};

ReduceLoop LoopOf(const Shape& in, const std::vector<int>& axes) {
  ReduceLoop loop;
  const auto strides = DenseStrides(in);
  for (int axis = 0; axis < in.rank(); ++axis) {
    DeviceLoop& part =
        std::binary_search(axes.begin(), axes.end(), axis) ? loop.reduced : loop.kept;
    part.dims.push_back(in[axis]);
    part.strides[0].push_back(strides[static_cast<size_t>(axis)]);
  }
  loop.kept.Join();
  loop.reduced.Join();
  return loop;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuReduce(const KernelInfo& info, GpuDevice& device) {
  // The largest of bools is that of their bytes.
  const bool bools = info.InputType(0) == DataType::kBool;
  const DataType type = bools ? DataType::kUint8 : info.InputType(0);
  const bool whole_exponents = info.node.op_type == "ReduceLogSumExp" && IsInteger(type);
  if (!IsDeviceType(type) || whole_exponents) return DeclineOnDevice(info, type);
  const auto prepare = [type, source = SourceOf(info.node.op_type, type),
                        &device](const PrepareContext& context) -> Result<PreparedKernel> {
    std::vector<int64_t> axes = context.node.attributes.Ints("axes");
    if (ReductionAxesAreInput(context.node)) {
      ONNXD_ASSIGN_OR_RETURN(axes, KnownInts(context, 1, "", axes));
    }
    const Shape& in = context.InputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const auto reduced, ReductionAxes(context.node, axes, in.rank()));
    const int64_t outputs = context.OutputShape(0).ElementCount();
    if (outputs == 0) return NothingToDo();
    const ReduceLoop loop = LoopOf(in, reduced);
    int64_t elements = 1;
    for (const int axis : reduced) elements *= in[axis];
    constexpr int64_t kWorthGroup = 64;
    const bool by_group = elements >= kWorthGroup && outputs < std::numeric_limits<int32_t>::max();
    ONNXD_ASSIGN_OR_RETURN(
        const GpuProgram kernel,
        device.FindKernel(source, by_group ? "reduce_by_group" : "reduce_by_lane"));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims kept_dims, ToDeviceDims(loop.kept.dims));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims kept_strides, ToDeviceDims(loop.kept.strides[0]));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims reduced_dims, ToDeviceDims(loop.reduced.dims));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims reduced_strides, ToDeviceDims(loop.reduced.strides[0]));
    LaunchGrid grid = LaunchGrid::Over(outputs);
    if (by_group) grid.groups[0] = static_cast<uint32_t>(outputs);
    PreparedKernel prepared;
    prepared.compute = [=, kept_rank = static_cast<int32_t>(loop.kept.dims.size()),
                        reduced_rank = static_cast<int32_t>(loop.reduced.dims.size())](
                           const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0)).Value(outputs).Value(elements);
      arguments.Value(kept_dims).Value(kept_rank).Value(kept_strides);
      arguments.Value(reduced_dims).Value(reduced_rank).Value(reduced_strides);
      return Launch(k, kernel, grid, arguments);
    };
    return prepared;
  };
  return MakeGpuKernel(prepare, {1});
}

}  // namespace onnxd
