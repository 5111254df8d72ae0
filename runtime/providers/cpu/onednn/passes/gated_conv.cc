#include "runtime/providers/cpu/onednn/passes/gated_conv.h"

#include "runtime/providers/cpu/onednn/own_products.h"
#include "runtime/providers/cpu/onednn/passes/conv_nodes.h"

namespace onnxd {
namespace {

// Smaller ones have fewer elements than the weights, or hardly more.
constexpr int64_t kLeastPixels = 512;

bool TakesGates(const Graph& graph, const Node& node) {
  return IsPointwiseConv(graph, node) && (*ConvWeightShape(graph, node))[0] * 4 <= kLeastPixels;
}

// [batch, height, width, channels], with as many channels as are known; null otherwise.
const SymbolicShape* ImageShape(const Graph& graph, ValueId id) {
  const auto& shape = graph.value(id).type.shape;
  return shape && shape->size() == 4 && (*shape)[3].known() ? &*shape : nullptr;
}

// The operand of a Mul that is a gate of the other one's channels; kNoValue when neither is.
ValueId GateOf(const Graph& graph, const Node& mul) {
  for (const size_t side : {0, 1}) {
    const SymbolicShape* gate = ImageShape(graph, mul.inputs[side]);
    const SymbolicShape* image = ImageShape(graph, mul.inputs[1 - side]);
    if (gate == nullptr || image == nullptr) continue;
    const auto& g = *gate;
    const auto& x = *image;
    if (g[1].value == 1 && g[2].value == 1 && g[3].value == x[3].value &&
        onednn::UsualPixels(x) >= kLeastPixels &&
        (g[0] == x[0] || (g[0].known() && g[0].value == 1)))
      return mul.inputs[side];
  }
  return kNoValue;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "gated_conv"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision == Precision::kBfloat16 || !onednn::OwnProductsTakeFewChannels()) {
      return false;
    }
    const GraphIndex index(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!TakesGates(graph, node)) continue;
      const Node* mul = ProducerForItAlone(graph, index, node);
      if (mul == nullptr || !mul->Is("Mul") || mul->since_version < 7) continue;
      const ValueId gate = GateOf(graph, *mul);
      if (gate == kNoValue) continue;
      node.op_type = "GatedConv";
      node.inputs.resize(4, kNoValue);
      node.inputs[0] = GraphMatcher::OtherOperand(*mul, gate);
      node.inputs.push_back(gate);
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* GatedConvFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
