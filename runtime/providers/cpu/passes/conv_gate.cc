#include "runtime/providers/cpu/passes/conv_gate.h"

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

bool IsPlainConv(const Graph& graph, const Node& node) {
  return (node.Is("Conv") || node.Is("FusedConv", "com.microsoft")) &&
         !node.attributes.Has("activation") && IsFloat(graph, node.outputs[0]);
}

// The product of x and Sigmoid(x), when nothing else reads either; -1 when there is none.
int GateOf(const Graph& graph, const GraphIndex& index, ValueId x) {
  if (index.use_count(x) != 2 || index.consumers(x).size() != 2) return -1;
  for (const size_t side : {0, 1}) {
    const Node& sigmoid = graph.nodes[static_cast<size_t>(index.consumers(x)[side])];
    const int product = index.consumers(x)[1 - side];
    const Node& mul = graph.nodes[static_cast<size_t>(product)];
    if (!sigmoid.Is("Sigmoid") || !mul.Is("Mul") || mul.since_version < 7) continue;
    const ValueId gate = sigmoid.outputs[0];
    if (index.use_count(gate) == 1 && GraphMatcher::OtherOperand(mul, x) == gate) return product;
  }
  return -1;
}

int HardSwishOf(const Graph& graph, const GraphIndex& index, ValueId x) {
  if (index.use_count(x) != 1 || index.consumers(x).empty()) return -1;
  const int consumer = index.consumers(x)[0];
  return graph.nodes[static_cast<size_t>(consumer)].Is("HardSwish") ? consumer : -1;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "conv_gate"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphIndex index(graph);
    std::vector<bool> dropped(graph.nodes.size(), false);
    bool changed = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Node& conv = graph.nodes[i];
      if (dropped[i] || !IsPlainConv(graph, conv)) continue;
      const ValueId x = conv.outputs[0];
      const int silu = GateOf(graph, index, x), hard = HardSwishOf(graph, index, x);
      const int last = silu >= 0 ? silu : hard;
      if (last < 0) continue;
      conv.attributes.Set("activation", std::string(silu >= 0 ? "Silu" : "HardSwish"));
      conv.op_type = "FusedConv";
      conv.domain = "com.microsoft";
      conv.since_version = 1;
      conv.outputs[0] = graph.nodes[static_cast<size_t>(last)].outputs[0];
      dropped[static_cast<size_t>(last)] = true;
      if (silu >= 0) DropSigmoid(graph, index, x, dropped);
      changed = true;
    }
    size_t position = 0;
    std::erase_if(graph.nodes, [&](const Node&) { return dropped[position++]; });
    return changed;
  }

 private:
  static void DropSigmoid(const Graph& graph, const GraphIndex& index, ValueId x,
                          std::vector<bool>& dropped) {
    for (const int consumer : index.consumers(x)) {
      const auto position = static_cast<size_t>(consumer);
      if (graph.nodes[position].Is("Sigmoid")) dropped[position] = true;
    }
  }
};

}  // namespace

const GraphPass* ConvGateFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
