#include <utility>

#include "runtime/graph/repetition.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// A product with a condition as a number.
struct Term {
  ValueId condition = kNoValue;
  ValueId value = kNoValue;
};

std::optional<Term> TermOf(const Graph& graph, const GraphMatcher& match, ValueId id) {
  const Node* product = match.Producer(id, "Mul");
  if (product == nullptr || product->since_version < 7) return std::nullopt;
  for (const size_t side : {0, 1}) {
    const Node* cast = match.Producer(product->inputs[side], "Cast");
    if (cast == nullptr) continue;
    if (graph.value(cast->inputs[0]).type.element != DataType::kBool) continue;
    return Term{cast->inputs[0], product->inputs[1 - side]};
  }
  return std::nullopt;
}

bool IsNot(const GraphMatcher& match, ValueId id, ValueId condition) {
  const Node* negation = match.Producer(id, "Not");
  return negation != nullptr && negation->inputs[0] == condition;
}

bool ChoosesByProducts(const Graph& graph, const GraphMatcher& match, Node& node, int64_t opset) {
  constexpr int64_t kFirstWithWhere = 9;
  if (!node.Is("Add") || (opset != 0 && opset < kFirstWithWhere)) return false;
  const auto a = TermOf(graph, match, node.inputs[0]), b = TermOf(graph, match, node.inputs[1]);
  if (!a || !b) return false;
  if (IsNot(match, b->condition, a->condition)) {
    node.inputs = {a->condition, a->value, b->value};
  } else if (IsNot(match, a->condition, b->condition)) {
    node.inputs = {b->condition, b->value, a->value};
  } else {
    return false;
  }
  node.op_type = "Where";
  node.since_version = opset >= 16 ? 16 : kFirstWithWhere;
  node.attributes = {};
  return true;
}

// Beside an operand of the result's shape the condition need not be repeated.
bool NeedsNoRepetition(const Graph& graph, const GraphMatcher& match, Node& node) {
  if (!node.Is("Where")) return false;
  const ValueId condition = BeforeRepetition(graph, match, node.inputs[0]);
  if (condition == node.inputs[0]) return false;
  const bool is_whole = SameKnownShape(graph, node.inputs[1], node.outputs[0]) ||
                        SameKnownShape(graph, node.inputs[2], node.outputs[0]);
  if (is_whole) node.inputs[0] = condition;
  return is_whole;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "selection"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      changed |= ChoosesByProducts(graph, match, node, context.opset) ||
                 NeedsNoRepetition(graph, match, node);
    }
    return changed;
  }
};

}  // namespace

const GraphPass* SelectionFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
