#include "runtime/providers/cpu/onednn/passes/gated_conv.h"

#include "runtime/graph/graph_match.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/onednn/own_products.h"

namespace onnxd {
namespace {

// Smaller ones have fewer elements than the weights, or hardly more.
constexpr int64_t kLeastPixels = 512;

bool IsPointwise(const Graph& graph, const Node& node) {
  if (!node.Is("ConvChannelsLast", "onnxd") || !IsFloat(graph, node.outputs[0])) return false;
  const auto found = graph.initializers.find(node.inputs[1]);
  if (found == graph.initializers.end() || found->second.shape().rank() != 4) return false;
  const Shape& w = found->second.shape();
  const Attributes& a = node.attributes;
  return w[2] == 1 && w[3] == 1 && w[0] * 4 <= kLeastPixels && a.Int("group", 1) == 1 &&
         AreAll(a.Ints("strides"), 1) && AreAll(a.Ints("pads"), 0);
}

// [batch, height, width, channels], of which all but the first are known; null otherwise.
const SymbolicShape* ImageShape(const Graph& graph, ValueId id) {
  const auto& shape = graph.value(id).type.shape;
  if (!shape || shape->size() != 4) return nullptr;
  for (size_t axis = 1; axis < 4; ++axis) {
    if (!(*shape)[axis].known()) return nullptr;
  }
  return &*shape;
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
        x[1].value * x[2].value >= kLeastPixels &&
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
      if (!IsPointwise(graph, node)) continue;
      const int producer = index.producer(node.inputs[0]);
      if (producer < 0 || index.use_count(node.inputs[0]) != 1) continue;
      const Node& mul = graph.nodes[static_cast<size_t>(producer)];
      if (!mul.Is("Mul") || mul.since_version < 7) continue;
      const ValueId gate = GateOf(graph, mul);
      if (gate == kNoValue) continue;
      node.op_type = "GatedConv";
      node.inputs.resize(4, kNoValue);
      node.inputs[0] = GraphMatcher::OtherOperand(mul, gate);
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
