// QuantizeLinear and DequantizeLinear, with one scale, one per slice of an axis, or one per block.
#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/providers/gpu/pointwise_expressions.h"

namespace onnxd {
namespace {

// The shape by which scales are broadcast to x. Blocks are an axis of their own: x is seen with its
// axis parted in (blocks, block), and the scales with (blocks, 1).
struct Views {
  Shape x, scale;
};

Result<Views> ViewsOf(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Shape& scale = context.InputShape(1);
  const auto fail = [&] {
    return InvalidArgument(StrCat(Describe(context.node), ": scale of shape ", scale.ToString(),
                                  " does not fit the input of shape ", x.ToString()));
  };
  if (context.HasInput(2) && context.InputShape(2).ElementCount() != scale.ElementCount()) {
    return fail();
  }
  const int64_t block = context.node.attributes.Int("block_size", 0);
  if (scale.ElementCount() == 1 && block == 0) return Views{x, Shape()};
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(context.node.attributes.Int("axis", 1), x.rank()));
  std::vector<int64_t> x_dims, scale_dims;
  if (block == 0) {
    if (scale.rank() != 1 || scale[0] != x[axis]) return fail();
    scale_dims.assign(static_cast<size_t>(x.rank()), 1);
    scale_dims[static_cast<size_t>(axis)] = x[axis];
    return Views{x, Shape(scale_dims)};
  }
  if (block < 0 || scale.rank() != x.rank()) return fail();
  const int64_t blocks = (x[axis] + block - 1) / block;
  if (x[axis] % block != 0) return Unimplemented("a last block that is not whole");
  for (int i = 0; i < x.rank(); ++i) {
    if (scale[i] != (i == axis ? blocks : x[i])) return fail();
    x_dims.push_back(i == axis ? blocks : x[i]);
    scale_dims.push_back(scale[i]);
    if (i != axis) continue;
    x_dims.push_back(block);
    scale_dims.push_back(1);
  }
  return Views{Shape(x_dims), Shape(scale_dims)};
}

Result<std::unique_ptr<Kernel>> BroadcastKernel(PointwiseProgram program, GpuDevice& device) {
  return MakeGpuKernel([program = std::move(program),
                        &device](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const Views views, ViewsOf(context));
    const bool has_zero = program.inputs[2] != DataType::kUndefined;
    const std::vector<const Shape*> shapes = {&views.x, &views.scale,
                                              has_zero ? &views.scale : nullptr};
    return PreparePointwise(program, device, shapes, views.x, nullptr);
  });
}

// Inputs x, scale and zero point, of types that the device has.
std::optional<PointwiseProgram> ProgramOf(const KernelInfo& info) {
  PointwiseProgram program;
  for (size_t i = 0; i < 3; ++i) {
    const bool absent = info.node.input(i) == kNoValue;
    program.inputs.push_back(absent ? DataType::kUndefined : info.InputType(i));
    if (!absent && !IsDeviceType(info.InputType(i))) return std::nullopt;
  }
  program.outputs = {info.OutputType(0)};
  program.functions = PointwiseFunctions();
  if (!IsDeviceType(info.OutputType(0))) return std::nullopt;
  return program;
}

// Blocks are a matter of views: the expression is that of a scale for each element.
Result<std::unique_ptr<Kernel>> MakeQuantization(const KernelInfo& info, GpuDevice& device) {
  auto program = ProgramOf(info);
  if (!program) return DeclineOnDevice(info, info.InputType(0));
  Node node = info.node;
  node.attributes.Erase("block_size");
  std::vector<std::string> operands = {"x0", "x1"};
  operands.push_back(program->inputs[2] == DataType::kUndefined ? "" : "x2");
  const auto expression = PointwiseExpression(node, program->inputs, program->outputs[0], operands);
  if (!expression) return DeclineOnDevice(info, info.InputType(0));
  program->results = {*expression};
  return BroadcastKernel(std::move(*program), device);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuQuantizeLinear(const KernelInfo& info, GpuDevice& device) {
  return MakeQuantization(info, device);
}

Result<std::unique_ptr<Kernel>> MakeGpuDequantizeLinear(const KernelInfo& info, GpuDevice& device) {
  return MakeQuantization(info, device);
}

}  // namespace onnxd
