#include "runtime/providers/fused/passes/gemm_rows.h"

#include <set>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

class Rewriting {
 public:
  explicit Rewriting(Graph& graph) : graph_(graph), match_(graph) {}

  bool Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) TryRewrite(n);
    size_t position = 0;
    std::erase_if(graph_.nodes, [&](const Node&) { return dropped_.contains(position++); });
    return changed_;
  }

 private:
  // x B + a row, as it is.
  bool IsPlain(const Node& gemm) const {
    const Attributes& a = gemm.attributes;
    const auto b = graph_.initializers.find(gemm.inputs[1]);
    const bool is_matrix = b != graph_.initializers.end() && b->second.shape().rank() == 2;
    if (!gemm.Is("Gemm") || gemm.since_version < 7 || !is_matrix) return false;
    if (gemm.input(2) != kNoValue) {
      const auto row = graph_.initializers.find(gemm.inputs[2]);
      const bool is_row = row != graph_.initializers.end() && row->second.shape().rank() == 1 &&
                          row->second.shape()[0] == b->second.shape()[1];
      if (!is_row) return false;
    }
    return a.Int("transA", 0) == 0 && a.Int("transB", 0) == 0 && a.Float("alpha", 1) == 1 &&
           a.Float("beta", 1) == 1;
  }

  // The same axes but for the last, which are those of the matrix.
  bool HaveSameRows(ValueId x, ValueId y, const Shape& matrix) const {
    const auto& of_x = graph_.value(x).type.shape;
    const auto& of_y = graph_.value(y).type.shape;
    if (!of_x || !of_y || of_x->size() < 2 || of_x->size() != of_y->size()) return false;
    for (size_t i = 0; i + 1 < of_x->size(); ++i) {
      const Dimension &a = (*of_x)[i], &b = (*of_y)[i];
      const bool same =
          a.known() ? b.known() && a.value == b.value : !a.symbol.empty() && a.symbol == b.symbol;
      if (!same) return false;
    }
    return of_x->back().value == matrix[0] && of_y->back().value == matrix[1];
  }

  void TryRewrite(size_t n) {
    if (!graph_.nodes[n].Is("Gemm") || !IsPlain(graph_.nodes[n])) return;
    const Node gemm = graph_.nodes[n];
    const Node* flat = match_.Producer(gemm.inputs[0], "Reshape");
    const std::vector<int>& consumers = match_.index().consumers(gemm.outputs[0]);
    if (flat == nullptr || consumers.size() != 1 ||
        match_.index().use_count(gemm.outputs[0]) != 1) {
      return;
    }
    const auto last = static_cast<size_t>(consumers[0]);
    const ValueId x = flat->inputs[0], y = graph_.nodes[last].outputs[0];
    const Shape& matrix = graph_.initializers.at(gemm.inputs[1]).shape();
    if (!graph_.nodes[last].Is("Reshape") || !HaveSameRows(x, y, matrix)) return;
    Node& product = graph_.nodes[n];
    product = Node();
    product.name = gemm.name;
    product.op_type = "MatMul";
    product.since_version = 13;
    product.inputs = {x, gemm.inputs[1]};
    const bool has_row = gemm.input(2) != kNoValue;
    product.outputs = {has_row ? graph_.AddUniqueValue(graph_.value(y).name, graph_.value(y).type)
                               : y};
    if (has_row) {
      Node sum;
      sum.name = graph_.nodes[last].name;
      sum.op_type = "Add";
      sum.since_version = 14;
      sum.inputs = {product.outputs[0], gemm.inputs[2]};
      sum.outputs = {y};
      graph_.nodes[last] = std::move(sum);
    } else {
      dropped_.insert(last);
    }
    changed_ = true;
  }

  Graph& graph_;
  const GraphMatcher match_;
  std::set<size_t> dropped_;
  bool changed_ = false;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "gemm_of_rows"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    return Rewriting(graph).Run();
  }
};

}  // namespace

const GraphPass* GemmOfRows() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
