#include <algorithm>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// All but the last.
bool SameLeadingExtents(const SymbolicShape& a, const SymbolicShape& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end() - 1, b.begin(), b.end() - 1, SameKnownExtent);
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), match_(graph) {}

  bool Run() {
    bool changed = false;
    for (Node& node : graph_.nodes) changed |= node.Is("Reshape") && Rewrite(node);
    return changed;
  }

 private:
  // Behind the product of rows that another Reshape made of more axes.
  bool Rewrite(Node& node) const {
    const ValueId flat_result = node.inputs[0];
    const Node* product = match_.Producer(flat_result, "MatMul");
    if (product == nullptr || match_.index().use_count(flat_result) != 1) return false;
    const ValueId rows = product->inputs[0], matrix = product->inputs[1];
    const Node* flatten = match_.Producer(rows, "Reshape");
    if (flatten == nullptr || RankOf(graph_, rows) != 2 || RankOf(graph_, matrix) != 2)
      return false;
    const ValueId x = flatten->inputs[0], y = node.outputs[0];
    if (RankOf(graph_, x).value_or(0) < 3 || !RankOf(graph_, y)) return false;
    if (!SameLeadingExtents(ShapeOf(x), ShapeOf(y))) return false;
    if (!SameKnownExtent(ShapeOf(x).back(), ShapeOf(rows).back())) return false;
    if (!SameKnownExtent(ShapeOf(matrix).back(), ShapeOf(y).back())) return false;
    node.op_type = "MatMul";
    node.since_version = product->since_version;
    node.inputs = {x, matrix};
    node.attributes = {};
    return true;
  }

  const SymbolicShape& ShapeOf(ValueId id) const { return *graph_.value(id).type.shape; }

  Graph& graph_;
  const GraphMatcher match_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "flattened_products"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    return Rewriter(graph).Run();
  }
};

}  // namespace

const GraphPass* FlattenedProducts() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
