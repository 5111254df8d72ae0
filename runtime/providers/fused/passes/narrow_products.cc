#include "runtime/providers/fused/passes/narrow_products.h"

#include "runtime/fusion/retyping.h"

namespace onnxd {
namespace {

// All operands, bias included, are of one type.
std::vector<size_t> FloatInputs(const Graph& graph, const Node& node) {
  std::vector<size_t> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.input(i) == kNoValue) continue;
    const ValueType& type = graph.value(node.inputs[i]).type;
    if (!type.is_tensor() || type.element != DataType::kFloat) return {};
    inputs.push_back(i);
  }
  return inputs;
}

}  // namespace

bool IsNarrowableProduct(const Node& node) {
  return node.Is("MatMul") || node.Is("Conv") || node.Is("ConvTranspose") ||
         (node.Is("Gemm") && node.since_version >= 7) || node.Is("FusedMatMul", "com.microsoft") ||
         node.Is("FusedConv", "com.microsoft");
}

Result<bool> NarrowProducts::Run(Graph& graph, const PassContext& context) const {
  RetypingRules rules;
  rules.inputs = [&](const Graph& of, const Node& node) -> std::vector<size_t> {
    const bool narrow = IsNarrowableProduct(node) && (!context.owns || context.owns(node)) &&
                        !float_layers_.contains(of.value(node.outputs[0]).name);
    return narrow ? FloatInputs(of, node) : std::vector<size_t>{};
  };
  if (context.precision == Precision::kFloat16) {
    rules.to = DataType::kFloat16;
    rules.suffix = "_fp16";
  } else if (context.precision == Precision::kBfloat16) {
    rules.to = DataType::kBfloat16;
    rules.suffix = "_bf16";
  } else {
    return false;
  }
  return RetypeNodes(graph, rules);
}

}  // namespace onnxd
