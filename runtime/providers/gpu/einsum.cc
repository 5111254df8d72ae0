// Einsum-12: a lane for each result. Products of matrices became MatMul before.
#include "runtime/ops/einsum.h"

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

// Labels of the output, and those that are summed; an operand steps through both by its strides.
struct Loops {
  std::vector<int64_t> kept, summed;
  std::vector<std::vector<int64_t>> kept_strides, summed_strides;  // by operand
};

// Parameters and product of so many operands.
std::string SourceOf(DataType type, size_t operands) {
  std::string pointers, strides, offsets, product;
  for (size_t i = 0; i < operands; ++i) {
    pointers += StrCat("GLOBAL const X* x", i, ", ");
    strides += StrCat(", Dims kept_strides", i, ", Dims summed_strides", i);
    offsets += StrCat("  x", i, " += offset_of(index, kept_rank, kept, kept_strides", i, ");\n");
    product += StrCat(i == 0 ? "" : " * ", "X_GET(x", i, ", offset_of(s, summed_rank, summed, ",
                      "summed_strides", i, "))");
  }
  return StrCat(DefineType("X", type), kOffsetFunction, "KERNEL einsum(", pointers,
                "GLOBAL X* y, i64 count, i64 sums, i32 kept_rank, i32 summed_rank, Dims kept, "
                "Dims summed",
                strides, ") {\n  const i64 index = GLOBAL_INDEX;\n  if (index >= count) return;\n",
                offsets, "  X_C sum = (X_C)0;\n  for (i64 s = 0; s < sums; ++s) sum += ", product,
                ";\n  X_PUT(y, index, sum);\n}\n");
}

// The extents of all labels; kInvalidArgument where operands disagree.
Result<std::vector<int64_t>> ExtentsOf(const PrepareContext& context,
                                       const EinsumEquation& equation) {
  std::vector<int64_t> extents(static_cast<size_t>(equation.label_count), 1);
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    const Shape& shape = context.InputShape(i);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      int64_t& extent = extents[static_cast<size_t>(equation.inputs[i][static_cast<size_t>(axis)])];
      if (shape[axis] == 1 || shape[axis] == extent) continue;
      if (extent != 1) {
        return InvalidArgument(
            StrCat(Describe(context.node), ": operands disagree about a label's extent"));
      }
      extent = shape[axis];
    }
  }
  return extents;
}

Loops LoopsOf(const PrepareContext& context, const EinsumEquation& equation,
              const std::vector<int64_t>& extents) {
  Loops loops;
  std::vector<bool> is_placed(extents.size(), false);
  for (const int label : equation.output) is_placed[static_cast<size_t>(label)] = true;
  std::vector<int> summed;
  for (const auto& labels : equation.inputs) {
    for (const int label : labels) {
      if (!is_placed[static_cast<size_t>(label)]) summed.push_back(label);
      is_placed[static_cast<size_t>(label)] = true;
    }
  }
  const auto dims = [&](const std::vector<int>& labels) {
    std::vector<int64_t> values;
    for (const int label : labels) values.push_back(extents[static_cast<size_t>(label)]);
    return values;
  };
  loops.kept = dims(equation.output);
  loops.summed = dims(summed);
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    // A label that stands twice walks along the diagonal.
    std::vector<int64_t> steps(extents.size(), 0);
    const Shape& shape = context.InputShape(i);
    int64_t stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const auto label = static_cast<size_t>(equation.inputs[i][static_cast<size_t>(axis)]);
      if (shape[axis] != 1) steps[label] += stride;
      stride *= shape[axis];
    }
    const auto of = [&](const std::vector<int>& labels) {
      std::vector<int64_t> strides;
      for (const int label : labels) strides.push_back(steps[static_cast<size_t>(label)]);
      return strides;
    };
    loops.kept_strides.push_back(of(equation.output));
    loops.summed_strides.push_back(of(summed));
  }
  return loops;
}

// kResourceExhausted where labels of several operands come to more than can be counted.
Result<int64_t> Product(const Node& node, const std::vector<int64_t>& values) {
  int64_t product = 1;
  for (const int64_t value : values) {
    const auto larger = CheckedMultiply(product, value);
    if (!larger) return ResourceExhausted(StrCat(Describe(node), ": too many terms"));
    product = *larger;
  }
  return product;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuEinsum(const KernelInfo& info, GpuDevice& device) {
  constexpr size_t kMostOperands = 4;
  const DataType type = info.InputType(0);
  if (!IsDeviceType(type) || type == DataType::kBool) return DeclineOnDevice(info, type);
  const size_t operands = info.node.inputs.size();
  if (operands > kMostOperands) return Unimplemented("Einsum of more than four operands");
  const std::string source = SourceOf(type, operands);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    std::vector<int> ranks;
    for (size_t i = 0; i < operands; ++i) ranks.push_back(context.InputShape(i).rank());
    ONNXD_ASSIGN_OR_RETURN(const EinsumEquation equation, ParseEinsum(context.node, ranks));
    ONNXD_ASSIGN_OR_RETURN(const std::vector<int64_t> extents, ExtentsOf(context, equation));
    const Loops loops = LoopsOf(context, equation, extents);
    ONNXD_ASSIGN_OR_RETURN(const int64_t count, Product(context.node, loops.kept));
    ONNXD_ASSIGN_OR_RETURN(const int64_t sums, Product(context.node, loops.summed));
    if (count == 0) return NothingToDo();
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims kept, ToDeviceDims(loops.kept));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims summed, ToDeviceDims(loops.summed));
    std::vector<DeviceDims> strides;
    for (size_t i = 0; i < operands; ++i) {
      for (const auto* of : {&loops.kept_strides[i], &loops.summed_strides[i]}) {
        ONNXD_ASSIGN_OR_RETURN(const DeviceDims made, ToDeviceDims(*of));
        strides.push_back(made);
      }
    }
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "einsum"));
    const auto kept_rank = static_cast<int32_t>(loops.kept.size());
    const auto summed_rank = static_cast<int32_t>(loops.summed.size());
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      for (size_t i = 0; i < operands; ++i) arguments.Pointer(k.input<void>(i));
      arguments.Pointer(k.output<void>(0)).Value(count).Value(sums);
      arguments.Value(kept_rank).Value(summed_rank).Value(kept).Value(summed);
      for (const DeviceDims& dims : strides) arguments.Value(dims);
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
