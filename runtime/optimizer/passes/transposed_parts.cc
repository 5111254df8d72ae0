#include <utility>

#include "runtime/base/checked_math.h"
#include "runtime/graph/graph_match.h"
#include "runtime/graph/regrouping.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

using Parts = std::vector<SymbolicShape>;  // of each axis

// The axes of `parted` that start at `next` and are `whole`; empty where sizes do not tell.
SymbolicShape TakeParts(const Dimension& whole, const SymbolicShape& parted, size_t next) {
  if (next == parted.size()) return {};
  if (SameKnownExtent(whole, parted[next])) return {parted[next]};
  SymbolicShape parts;
  int64_t product = 1;
  for (; whole.known() && next < parted.size() && parted[next].known(); ++next) {
    parts.push_back(parted[next]);
    product = SaturatingMultiply(product, parted[next].value);
    if (product == whole.value) return parts;
    if (product > whole.value) break;
  }
  return {};
}

// Each axis of `whole` as the axes of `parted` that have its elements; nullopt where they are not
// known, or axes are merged, too.
std::optional<Parts> PartsOf(const SymbolicShape& whole, const SymbolicShape& parted) {
  Parts parts(whole.size());
  size_t axis = 0, next = 0;
  for (; axis < whole.size(); ++axis, next += parts[axis - 1].size()) {
    parts[axis] = TakeParts(whole[axis], parted, next);
    if (parts[axis].empty()) break;
  }
  if (axis == whole.size()) return next == parted.size() ? std::optional(parts) : std::nullopt;
  // One axis of unknown parts has what the others leave.
  size_t end = parted.size();
  for (size_t last = whole.size() - 1; last > axis; --last) {
    if (end == next || !SameKnownExtent(whole[last], parted[end - 1])) return std::nullopt;
    parts[last] = {parted[--end]};
  }
  if (end <= next) return std::nullopt;
  parts[axis] = {parted.begin() + static_cast<std::ptrdiff_t>(next),
                 parted.begin() + static_cast<std::ptrdiff_t>(end)};
  return parts;
}

// Shapes of as many elements, of which one extent may not be known.
bool IsSameShape(const SymbolicShape& a, const SymbolicShape& b) {
  if (a.size() != b.size()) return false;
  int unknown = 0;
  for (size_t axis = 0; axis < a.size(); ++axis) {
    if (SameKnownExtent(a[axis], b[axis])) continue;
    const bool both_known = a[axis].known() && b[axis].known();
    if (both_known || ++unknown > 1) return false;
  }
  return true;
}

// The parts in the order that they have before the Transpose, and the order that it gives them.
std::pair<SymbolicShape, std::vector<int64_t>> BeforeTransposition(
    const Parts& parts, const std::vector<int64_t>& order) {
  std::vector<size_t> place(parts.size());  // behind the Transpose, of an axis before it
  for (size_t i = 0; i < parts.size(); ++i) place[static_cast<size_t>(order[i])] = i;
  SymbolicShape apart;
  std::vector<int64_t> begin(parts.size());  // by place
  for (const size_t i : place) {
    begin[i] = static_cast<int64_t>(apart.size());
    apart.insert(apart.end(), parts[i].begin(), parts[i].end());
  }
  std::vector<int64_t> order_of_parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t part = 0; part < parts[i].size(); ++part) {
      order_of_parts.push_back(begin[i] + static_cast<int64_t>(part));
    }
  }
  return {apart, order_of_parts};
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), match_(graph) {}

  bool Run() {
    bool changed = false;
    std::vector<Node> nodes;
    nodes.reserve(graph_.nodes.size());
    for (const Node& node : graph_.nodes) {
      if (node.Is("Reshape") && Write(node, nodes)) {
        changed = true;
      } else {
        nodes.push_back(node);
      }
    }
    graph_.nodes = std::move(nodes);
    return changed;
  }

 private:
  bool Write(const Node& parting, std::vector<Node>& nodes) {
    const Node* transpose = match_.Producer(parting.inputs[0], "Transpose");
    if (transpose == nullptr || match_.index().use_count(parting.inputs[0]) != 1) return false;
    const Node* first = match_.Producer(transpose->inputs[0], "Reshape");
    const auto order = TransposeOrder(graph_, *transpose);
    if (first == nullptr || first->since_version < 5 || !order) return false;
    const auto &start = ShapeOf(first->inputs[0]), &whole = ShapeOf(parting.inputs[0]),
               &parted = ShapeOf(parting.outputs[0]);
    if (!start || !whole || !parted || parted->size() <= whole->size()) return false;
    const auto parts = PartsOf(*whole, *parted);
    if (!parts) return false;
    const auto [apart, order_of_parts] = BeforeTransposition(*parts, *order);
    const auto target = ReshapeTarget(*start, apart);
    if (!target) return false;
    Node turned = *transpose;
    turned.inputs = {first->inputs[0]};
    turned.outputs = parting.outputs;
    turned.attributes.Set("perm", order_of_parts);
    if (!IsSameShape(*start, apart)) {
      const std::string name = graph_.value(parting.outputs[0]).name + "_parts";
      Node reshape = ReshapeNode(graph_, first->since_version, first->inputs[0], *target, name);
      reshape.outputs = {graph_.AddUniqueValue(name)};
      turned.inputs = reshape.outputs;
      nodes.push_back(std::move(reshape));
    }
    nodes.push_back(std::move(turned));
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
  std::string_view name() const override { return "transposed_parts"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    return Rewriter(graph).Run();
  }
};

}  // namespace

const GraphPass* TransposedParts() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
