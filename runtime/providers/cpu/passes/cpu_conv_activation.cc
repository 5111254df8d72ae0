#include "runtime/providers/cpu/passes/cpu_conv_activation.h"

#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/activation.h"

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

// What takes a convolution's output, and becomes its activation.
struct Taken {
  std::string activation;
  int last = -1;  // the node whose output the convolution gives
};

Taken ActivationOf(const Graph& graph, const GraphIndex& index, ValueId x) {
  if (const int gate = GateOf(graph, index, x); gate >= 0) return {"Silu", gate};
  if (index.use_count(x) != 1 || index.consumers(x).empty()) return {};
  const int consumer = index.consumers(x)[0];
  return {ActivationName(graph.nodes[static_cast<size_t>(consumer)]), consumer};
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "cpu_conv_activation"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphIndex index(graph);
    std::vector<bool> dropped(graph.nodes.size(), false);
    bool changed = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Node& conv = graph.nodes[i];
      if (dropped[i] || !IsPlainConv(graph, conv)) continue;
      const ValueId x = conv.outputs[0];
      const Taken taken = ActivationOf(graph, index, x);
      if (taken.activation.empty()) continue;
      conv.attributes.Set("activation", taken.activation);
      conv.op_type = "FusedConv";
      conv.domain = "com.microsoft";
      conv.since_version = 1;
      conv.outputs[0] = graph.nodes[static_cast<size_t>(taken.last)].outputs[0];
      for (const int consumer : index.consumers(x)) dropped[static_cast<size_t>(consumer)] = true;
      changed = true;
    }
    size_t position = 0;
    std::erase_if(graph.nodes, [&](const Node&) { return dropped[position++]; });
    return changed;
  }
};

}  // namespace

const GraphPass* CpuConvActivationFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
