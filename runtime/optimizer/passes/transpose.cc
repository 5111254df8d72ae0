#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

bool KeepsOrder(const std::vector<int64_t>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "transpose"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  // In order, so that each sees what became of those before it.
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("Transpose")) continue;
      auto order = TransposeOrder(graph, node);
      if (!order) continue;
      if (const Node* before = match.Producer(node.inputs[0], "Transpose")) {
        const auto first = TransposeOrder(graph, *before);
        if (first && first->size() == order->size()) {
          for (int64_t& axis : *order) axis = (*first)[static_cast<size_t>(axis)];
          node.inputs[0] = before->inputs[0];
          node.attributes.Set("perm", *order);
          changed = true;
        }
      }
      if (!KeepsOrder(*order)) continue;
      node.op_type = "Identity";
      node.attributes = {};
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* TransposeElimination() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
