#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

bool IsPermutation(const std::vector<int64_t>& order) {
  std::vector<bool> seen(order.size(), false);
  for (const int64_t axis : order) {
    if (axis < 0 || axis >= static_cast<int64_t>(order.size()) || seen[static_cast<size_t>(axis)]) {
      return false;
    }
    seen[static_cast<size_t>(axis)] = true;
  }
  return true;
}

// nullopt also for an order that only a known rank would have shown to be wrong.
std::optional<std::vector<int64_t>> OrderOf(const Graph& graph, const Node& node) {
  std::vector<int64_t> order = node.attributes.Ints("perm");
  if (!order.empty()) return IsPermutation(order) ? std::optional(order) : std::nullopt;
  const auto rank = RankOf(graph, node.inputs[0]);
  if (!rank) return std::nullopt;
  for (int64_t axis = *rank - 1; axis >= 0; --axis) order.push_back(axis);
  return order;
}

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
      auto order = OrderOf(graph, node);
      if (!order) continue;
      if (const Node* before = match.Producer(node.inputs[0], "Transpose")) {
        const auto first = OrderOf(graph, *before);
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
