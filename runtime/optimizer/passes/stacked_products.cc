#include <algorithm>
#include <utility>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/regrouping.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// [*batch, rows, columns], besides axes of one element.
struct Stack {
  SymbolicShape batch;
  SymbolicShape matrix;

  SymbolicShape shape() const {
    SymbolicShape all = batch;
    all.insert(all.end(), matrix.begin(), matrix.end());
    return all;
  }
};

// `apart` as a stack of the matrices of `merged`, [all, rows, columns].
std::optional<Stack> StackOf(const SymbolicShape& apart, const SymbolicShape& merged) {
  if (merged.size() != 3) return std::nullopt;
  size_t end = apart.size();
  for (size_t axis = 2; axis > 0; --axis) {
    while (end > 0 && !SameKnownExtent(apart[end - 1], merged[axis])) {
      if (apart[end - 1].value != 1) return std::nullopt;
      --end;
    }
    if (end == 0) return std::nullopt;
    --end;
  }
  while (end > 0 && apart[end - 1].value == 1) --end;
  Stack stack{{apart.begin(), apart.begin() + static_cast<std::ptrdiff_t>(end)},
              {merged[1], merged[2]}};
  for (const Dimension& extent : stack.batch) {
    if (!SameKnownExtent(extent, extent)) return std::nullopt;  // of no name
  }
  return stack;
}

// An operand before its leading axes were merged.
struct Operand {
  ValueId source;
  const Node* reshape;
  const Node* transpose = nullptr;  // of rows and columns, between Reshape and MatMul
  Stack stack;                      // of the source
};

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), match_(graph) {}

  bool Run() {
    bool changed = false;
    std::vector<Node> nodes;
    nodes.reserve(graph_.nodes.size());
    for (const Node& node : graph_.nodes) {
      const Node* product =
          node.Is("Reshape") ? match_.Producer(node.inputs[0], "MatMul") : nullptr;
      if (product != nullptr && Write(node, *product, nodes)) {
        changed = true;
      } else {
        nodes.push_back(node);
      }
    }
    graph_.nodes = std::move(nodes);
    return changed;
  }

 private:
  const std::optional<SymbolicShape>& ShapeOf(ValueId id) const {
    return graph_.value(id).type.shape;
  }

  std::optional<Operand> OperandOf(ValueId id) const {
    const Node* transpose = match_.Producer(id, "Transpose");
    if (transpose != nullptr) {
      if (TransposeOrder(graph_, *transpose) != std::vector<int64_t>{0, 2, 1}) return std::nullopt;
      id = transpose->inputs[0];
    }
    const Node* reshape = match_.Producer(id, "Reshape");
    if (reshape == nullptr || reshape->since_version < 5) return std::nullopt;
    const auto &apart = ShapeOf(reshape->inputs[0]), &merged = ShapeOf(id);
    if (!apart || !merged) return std::nullopt;
    auto stack = StackOf(*apart, *merged);
    if (!stack) return std::nullopt;
    return Operand{reshape->inputs[0], reshape, transpose, *std::move(stack)};
  }

  // Where the result's Reshape parts what those of both operands merged, writes the three anew.
  bool Write(const Node& apart, const Node& product, std::vector<Node>& nodes) {
    const ValueId merged = product.outputs[0];
    if (apart.since_version < 5 || match_.index().use_count(merged) != 1) return false;
    const auto a = OperandOf(product.inputs[0]), b = OperandOf(product.inputs[1]);
    if (!a || !b || !ShapeOf(merged) || !ShapeOf(apart.outputs[0])) return false;
    const auto result = StackOf(*ShapeOf(apart.outputs[0]), *ShapeOf(merged));
    if (!result || result->batch.size() < 2) return false;
    if (!SameExtents(a->stack.batch, result->batch) || !SameExtents(b->stack.batch, result->batch))
      return false;
    const auto target_of_a = ReshapeTarget(*ShapeOf(a->source), a->stack.shape());
    const auto target_of_b = ReshapeTarget(*ShapeOf(b->source), b->stack.shape());
    const auto target = ReshapeTarget(result->shape(), *ShapeOf(apart.outputs[0]));
    if (!target_of_a || !target_of_b || !target) return false;
    Node stacked = product;
    stacked.inputs = {Apart(*a, *target_of_a, nodes), Apart(*b, *target_of_b, nodes)};
    stacked.outputs = {NewValue(merged)};
    const ValueId stack = stacked.outputs[0];
    nodes.push_back(std::move(stacked));
    const std::string name = graph_.value(apart.outputs[0]).name;
    Node reshape = ReshapeNode(graph_, apart.since_version, stack, *target, name);
    reshape.name = apart.name;
    reshape.outputs = apart.outputs;
    nodes.push_back(std::move(reshape));
    return true;
  }

  static bool SameExtents(const SymbolicShape& a, const SymbolicShape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameKnownExtent);
  }

  ValueId NewValue(ValueId like) {
    return graph_.AddUniqueValue(graph_.value(like).name + "_stack");
  }

  // The operand as a stack, turned as its matrices were.
  ValueId Apart(const Operand& operand, const std::vector<int64_t>& target,
                std::vector<Node>& nodes) {
    const std::string name = graph_.value(operand.reshape->outputs[0]).name + "_stack";
    Node reshape =
        ReshapeNode(graph_, operand.reshape->since_version, operand.source, target, name);
    reshape.outputs = {graph_.AddUniqueValue(name)};
    const ValueId stack = reshape.outputs[0];
    nodes.push_back(std::move(reshape));
    if (operand.transpose == nullptr) return stack;
    Node transpose = *operand.transpose;
    std::vector<int64_t> order(target.size());
    for (size_t axis = 0; axis < order.size(); ++axis) order[axis] = static_cast<int64_t>(axis);
    std::swap(order[order.size() - 2], order.back());
    transpose.attributes.Set("perm", order);
    transpose.inputs = {stack};
    transpose.outputs = {NewValue(operand.transpose->outputs[0])};
    const ValueId turned = transpose.outputs[0];
    nodes.push_back(std::move(transpose));
    return turned;
  }

  Graph& graph_;
  const GraphMatcher match_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "stacked_products"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    return Rewriter(graph).Run();
  }
};

}  // namespace

const GraphPass* StackedProducts() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
