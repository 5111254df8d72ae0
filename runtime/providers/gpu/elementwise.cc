// Elementwise operators: pointwise_expressions.cc says what each computes.
#include "runtime/base/str_cat.h"
#include "runtime/ops/legacy_broadcast.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/providers/gpu/pointwise_expressions.h"

namespace onnxd {
namespace {

// One operator as a program; nullopt as PointwiseExpression.
std::optional<PointwiseProgram> ProgramOf(const KernelInfo& info) {
  PointwiseProgram program;
  std::vector<std::string> operands;
  for (size_t i = 0; i < info.node.inputs.size(); ++i) {
    // CastLike wants the type of its second input alone.
    const bool absent = info.node.inputs[i] == kNoValue || (i > 0 && info.node.Is("CastLike"));
    program.inputs.push_back(absent ? DataType::kUndefined : info.InputType(i));
    operands.push_back(absent ? std::string() : StrCat("x", i));
  }
  const auto expression =
      PointwiseExpression(info.node, program.inputs, info.OutputType(0), operands);
  if (!expression) return std::nullopt;
  program.outputs = {info.OutputType(0)};
  program.functions = PointwiseFunctions();
  program.results = {*expression};
  return program;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuElementwise(const KernelInfo& info, GpuDevice& device) {
  auto program = ProgramOf(info);
  if (!program) return DeclineOnDevice(info, info.InputType(0));
  return MakeGpuKernel([program = std::move(*program),
                        &device](const PrepareContext& context) -> Result<PreparedKernel> {
    std::vector<Shape> shapes;
    for (size_t i = 0; i < context.inputs.size(); ++i) {
      const bool absent = program.inputs[i] == DataType::kUndefined;
      shapes.push_back(absent   ? Shape()
                       : i == 1 ? LegacyBroadcastShape(context.node, context.InputShape(0),
                                                       context.InputShape(1))
                                : context.InputShape(i));
    }
    std::vector<const Shape*> operands;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const bool absent = program.inputs[i] == DataType::kUndefined;
      operands.push_back(absent ? nullptr : &shapes[i]);
    }
    return PreparePointwise(program, device, operands, context.OutputShape(0), nullptr);
  });
}

}  // namespace onnxd
