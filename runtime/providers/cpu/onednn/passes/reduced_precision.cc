#include "runtime/providers/cpu/onednn/passes/reduced_precision.h"

#include "runtime/fusion/retyping.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/onednn/passes/matmul_epilogue.h"
#include "runtime/providers/cpu/onednn/post_ops.h"

namespace onnxd {
namespace {

constexpr size_t kX = 0, kWeights = 1, kSum = 3;

bool IsFloatTensor(const Graph& graph, ValueId id) {
  return id == kNoValue ||
         (graph.value(id).type.is_tensor() && graph.value(id).type.element == DataType::kFloat);
}

// An activation that oneDNN computes before it rounds.
bool HasPostOperation(const Node& node) {
  const auto activation = ActivationOf(node);
  dnnl::post_ops ops;
  return activation.ok() && onednn::AddActivation(*activation, ops);
}

bool TakesBfloat16(const Graph& graph, const Node& node) {
  return (node.Is("ConvChannelsLast", "onnxd") || node.Is("MatMulBiasActivation", "onnxd")) &&
         IsFloatTensor(graph, node.input(kX)) && IsFloatTensor(graph, node.input(kSum)) &&
         graph.IsInitializer(node.input(kWeights)) && HasPostOperation(node);
}

// The kernel takes bfloat16 where its products are faster so; masks stay float.
bool AttendsInBfloat16(const Graph& graph, const Node& node) {
  return node.Is("FusedAttention", "onnxd") && math::CurrentSimd().fast_bfloat16 &&
         IsFloatTensor(graph, node.input(0)) && IsFloatTensor(graph, node.input(3)) &&
         IsFloatTensor(graph, node.input(4));
}

bool Narrow(Graph& graph) {
  RetypingRules rules;
  rules.to = DataType::kBfloat16;
  rules.suffix = "_bf16";
  rules.inputs = [](const Graph& of, const Node& node) -> std::vector<size_t> {
    if (TakesBfloat16(of, node)) return {kX, kWeights, kSum};
    if (AttendsInBfloat16(of, node)) return {0, 1, 2};
    return {};
  };
  rules.convert = [](const void* from, void* to, int64_t count) {
    math::CurrentSimd().narrow(static_cast<const float*>(from), static_cast<uint16_t*>(to), nullptr,
                               count);
  };
  rules.also_moves = [](const Node& node) { return node.Is("MaxPoolChannelsLast", "onnxd"); };
  rules.can_end_in_float = [](const Node& node) {
    return node.Is("MatMulBiasActivation", "onnxd") && math::CurrentSimd().fast_bfloat16;
  };
  return RetypeNodes(graph, rules);
}

bool Split(Graph& graph) {
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (!node.Is("MatMulBiasActivation", "onnxd") || !TakesBfloat16(graph, node)) continue;
    node.op_type = "MatMulBfloat16x3";
    changed = true;
  }
  return changed;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "reduced_precision"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision != Precision::kBfloat16 && context.precision != Precision::kBfloat16x3) {
      return false;
    }
    const bool products = BareProductsAsFused(graph);
    const bool changed = context.precision == Precision::kBfloat16 ? Narrow(graph) : Split(graph);
    return products || changed;
  }
};

}  // namespace

const GraphPass* ReducedPrecision() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
