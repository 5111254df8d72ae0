#include <algorithm>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/regrouping.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

using Axes = std::vector<size_t>;

// The axes of one element, or those that are not known to be.
Axes AxesOfOne(const SymbolicShape& shape, bool of_one) {
  Axes axes;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if ((shape[axis].value == 1) == of_one) axes.push_back(axis);
  }
  return axes;
}

bool SameExtents(const SymbolicShape& a, const Axes& axes_of_a, const SymbolicShape& b,
                 const Axes& axes_of_b) {
  return std::equal(axes_of_a.begin(), axes_of_a.end(), axes_of_b.begin(), axes_of_b.end(),
                    [&](size_t i, size_t j) { return SameKnownExtent(a[i], b[j]); });
}

// What a tensor goes through: `before` regroups to `from`, which the order turns to `to`, and that
// regroups to `after`.
struct Way {
  const SymbolicShape &before, &from;
  const std::vector<int64_t>& order;
  const SymbolicShape &to, &after;
};

// The order of the axes of `before` in `after`, where regrouping only adds and drops ones.
std::optional<std::vector<int64_t>> OrderWithoutOnes(const Way& way) {
  if (way.before.size() != way.after.size() || way.order.size() != way.from.size() ||
      way.to.size() != way.from.size()) {
    return std::nullopt;
  }
  const Axes before = AxesOfOne(way.before, false), from = AxesOfOne(way.from, false),
             to = AxesOfOne(way.to, false), after = AxesOfOne(way.after, false);
  if (!SameExtents(way.before, before, way.from, from) ||
      !SameExtents(way.to, to, way.after, after)) {
    return std::nullopt;
  }
  const Axes ones_before = AxesOfOne(way.before, true), ones_after = AxesOfOne(way.after, true);
  if (before.size() != after.size()) return std::nullopt;
  std::vector<int64_t> order(way.after.size());
  for (size_t i = 0; i < after.size(); ++i) {
    const auto source = static_cast<size_t>(way.order[to[i]]);
    const auto found = std::find(from.begin(), from.end(), source);
    if (found == from.end()) return std::nullopt;
    order[after[i]] = static_cast<int64_t>(before[static_cast<size_t>(found - from.begin())]);
  }
  for (size_t i = 0; i < ones_after.size(); ++i) {
    order[ones_after[i]] = static_cast<int64_t>(ones_before[i]);
  }
  return order;
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), match_(graph) {}

  bool Run() {
    bool changed = false;
    for (Node& node : graph_.nodes) {
      if (IsRegrouping(node)) changed |= TakesBack(node) || Turns(node);
    }
    return changed;
  }

 private:
  const Node* RegroupingBehind(ValueId id) const {
    const int position = match_.index().producer(id);
    if (position < 0) return nullptr;
    const Node& node = graph_.nodes[static_cast<size_t>(position)];
    return IsRegrouping(node) ? &node : nullptr;
  }

  bool TakesBack(Node& node) const {
    const Node* first = RegroupingBehind(node.inputs[0]);
    if (first == nullptr || !SameKnownShape(graph_, first->inputs[0], node.outputs[0])) {
      return false;
    }
    node.op_type = "Identity";
    node.since_version = 1;
    node.inputs = {first->inputs[0]};
    node.attributes = {};
    return true;
  }

  bool Turns(Node& node) const {
    const Node* transpose = match_.Producer(node.inputs[0], "Transpose");
    if (transpose == nullptr || match_.index().use_count(node.inputs[0]) != 1) return false;
    const Node* first = RegroupingBehind(transpose->inputs[0]);
    const auto order = TransposeOrder(graph_, *transpose);
    if (first == nullptr || !order) return false;
    const auto &before = ShapeOf(first->inputs[0]), &from = ShapeOf(transpose->inputs[0]),
               &to = ShapeOf(node.inputs[0]), &after = ShapeOf(node.outputs[0]);
    if (!before || !from || !to || !after) return false;
    const auto plain = OrderWithoutOnes({*before, *from, *order, *to, *after});
    if (!plain) return false;
    node.op_type = "Transpose";
    node.since_version = transpose->since_version;
    node.inputs = {first->inputs[0]};
    node.attributes = {};
    node.attributes.Set("perm", *plain);
    return true;
  }

  const std::optional<SymbolicShape>& ShapeOf(ValueId id) const {
    return graph_.value(id).type.shape;
  }

  Graph& graph_;
  const GraphMatcher match_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "regrouping"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    return Rewriter(graph).Run();
  }
};

}  // namespace

const GraphPass* RegroupingElimination() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
