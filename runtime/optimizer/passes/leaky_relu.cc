#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// The one slope of a PRelu that keeps its input's shape; nullopt for other nodes, and for doubles,
// which an attribute would round.
std::optional<float> SlopeOf(const Graph& graph, const Node& node) {
  if (!node.Is("PRelu") || node.since_version < 7) return std::nullopt;
  const auto slope = graph.initializers.find(node.inputs[1]);
  if (slope == graph.initializers.end() || slope->second.type() == DataType::kDouble) {
    return std::nullopt;
  }
  const auto rank = RankOf(graph, node.inputs[0]);
  const int of_slope = slope->second.shape().rank();
  if (of_slope > 0 && (!rank || of_slope > *rank)) return std::nullopt;
  return ScalarConstant(graph, node.inputs[1]);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "leaky_relu"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (Node& node : graph.nodes) {
      const auto slope = SlopeOf(graph, node);
      if (!slope) continue;
      node.op_type = "LeakyRelu";
      node.since_version = node.since_version < 16 ? 6 : 16;
      node.inputs.resize(1);
      node.attributes.Set("alpha", *slope);
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* PReluAsLeakyRelu() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
