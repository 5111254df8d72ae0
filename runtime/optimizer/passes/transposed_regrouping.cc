#include <algorithm>
#include <utility>

#include "runtime/base/checked_math.h"
#include "runtime/graph/graph_match.h"
#include "runtime/graph/regrouping.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// An axis of a tensor that is regrouped: the group of axes that hold the same elements on either
// side, and where among them it is.
struct GroupedAxis {
  int group, place;
};
using GroupedAxes = std::vector<std::optional<GroupedAxis>>;  // nullopt: of one element

// One side of the regrouping, whose axes get their groups from the first on.
class Side {
 public:
  explicit Side(const SymbolicShape& shape) : shape_(shape), axes_(shape.size()) { SkipOnes(); }

  bool at_end() const { return next_ == shape_.size(); }
  const Dimension& next() const { return shape_[next_]; }
  bool knows_next() const { return !at_end() && next().known(); }
  int64_t product() const { return product_; }
  const GroupedAxes& axes() const { return axes_; }

  void Take(int group) {
    if (group != group_) taken_ = 0, product_ = 1;
    group_ = group;
    product_ = SaturatingMultiply(product_, next().value);
    axes_[next_++] = {group, taken_++};
    SkipOnes();
  }

 private:
  void SkipOnes() {
    while (!at_end() && next().value == 1) ++next_;
  }

  const SymbolicShape& shape_;
  GroupedAxes axes_;
  size_t next_ = 0;
  int group_ = -1, taken_ = 0;
  int64_t product_ = 1;  // of the group's sizes, when all are known
};

// One axis and its equal, or as many as have equal products; false where sizes are not known.
bool TakeGroup(int group, Side& a, Side& b) {
  const bool equal = SameKnownExtent(a.next(), b.next());
  if (!equal && (!a.knows_next() || !b.knows_next())) return false;
  a.Take(group), b.Take(group);
  while (!equal && a.product() != b.product()) {
    Side& smaller = a.product() < b.product() ? a : b;
    if (!smaller.knows_next()) return false;
    smaller.Take(group);
  }
  return true;
}

// From sizes on that are not known all axes that are left are one group.
void TakeGroups(Side& a, Side& b) {
  int group = 0;
  while (!a.at_end() && !b.at_end() && TakeGroup(group, a, b)) ++group;
  for (Side* side : {&a, &b}) {
    while (!side->at_end()) side->Take(group);
  }
}

// The groups in the order of these axes; nullopt unless each is whole and in its own order.
std::optional<std::vector<int>> GroupsInOrder(const GroupedAxes& axes) {
  std::vector<int> groups;
  int place = 0;
  for (const auto& axis : axes) {
    if (!axis) continue;
    if (axis->place == 0) {
      groups.push_back(axis->group);
      place = 0;
    } else if (groups.empty() || axis->group != groups.back() || axis->place != ++place) {
      return std::nullopt;
    }
  }
  return groups;
}

const std::optional<SymbolicShape>& ShapeOf(const Graph& graph, ValueId id) {
  return graph.value(id).type.shape;
}

// Whether transpositions in these orders before and after a regrouping leave the elements as they
// were.
bool KeepsElements(const SymbolicShape& from, const std::vector<int64_t>& before,
                   const SymbolicShape& to, const std::vector<int64_t>& after) {
  if (before.size() != from.size() || after.size() != to.size()) return false;
  Side a(from), b(to);
  TakeGroups(a, b);
  GroupedAxes first(from.size()), last;
  for (size_t i = 0; i < before.size(); ++i) first[static_cast<size_t>(before[i])] = a.axes()[i];
  for (const int64_t axis : after) last.push_back(b.axes()[static_cast<size_t>(axis)]);
  const auto groups = GroupsInOrder(first);
  return groups && groups == GroupsInOrder(last);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "transposed_regrouping"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) changed |= Rewrite(graph, match, node);
    return changed;
  }

 private:
  static bool Rewrite(Graph& graph, const GraphMatcher& match, Node& node) {
    if (!node.Is("Transpose")) return false;
    const int middle = match.index().producer(node.inputs[0]);
    if (middle < 0) return false;
    const Node& regrouping = graph.nodes[static_cast<size_t>(middle)];
    if (!IsRegrouping(regrouping)) return false;
    const Node* first = match.Producer(regrouping.inputs[0], "Transpose");
    if (first == nullptr) return false;
    const auto &start = ShapeOf(graph, first->inputs[0]), &end = ShapeOf(graph, node.outputs[0]);
    const auto &from = ShapeOf(graph, regrouping.inputs[0]), &to = ShapeOf(graph, node.inputs[0]);
    const auto before = TransposeOrder(graph, *first), after = TransposeOrder(graph, node);
    if (!start || !end || !from || !to || !before || !after) return false;
    if (!KeepsElements(*from, *before, *to, *after)) return false;
    const auto target = ReshapeTarget(*start, *end);
    if (!target) return false;
    // One that models of the same opset have.
    const int version = regrouping.Is("Reshape")  ? regrouping.since_version
                        : node.since_version < 13 ? 5
                                                  : 13;
    if (version < 5) return false;
    Node reshape =
        ReshapeNode(graph, version, first->inputs[0], *target, graph.value(node.outputs[0]).name);
    reshape.name = node.name;
    reshape.outputs = node.outputs;
    node = std::move(reshape);
    return true;
  }
};

}  // namespace

const GraphPass* TransposedRegrouping() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
