#include "runtime/providers/fused/passes/gemm_rows.h"

#include <map>
#include <set>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"

namespace onnxd {
namespace {

class Rewriting {
 public:
  explicit Rewriting(Graph& graph) : graph_(graph), match_(graph) {}

  bool Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) TryRewrite(n);
    std::vector<Node> nodes;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (const auto join = joins_.find(n); join != joins_.end()) {
        nodes.push_back(std::move(join->second));
      }
      if (!dropped_.contains(n)) nodes.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(nodes);
    return changed_;
  }

 private:
  static bool IsTurned(const Node& gemm) { return gemm.attributes.Int("transB", 0) != 0; }

  // The matrix in the other order of its axes; kNoValue where its elements cannot be had.
  ValueId Turned(ValueId id) {
    const auto plain = graph_.initializers.at(id).Materialize();
    if (!plain.ok()) return kNoValue;
    auto turned = DataTypeBits(plain->type()) == 16 ? TurnedTensor<uint16_t>(*plain)
                                                    : TurnedTensor<uint32_t>(*plain);
    if (!turned.ok()) return kNoValue;
    return graph_.AddInitializer(graph_.value(id).name + "_turned", *std::move(turned));
  }

  // `T` has the width of the elements.
  template <typename T>
  static Result<Tensor> TurnedTensor(const Tensor& plain) {
    const int64_t rows = plain.shape()[0], columns = plain.shape()[1];
    ONNXD_ASSIGN_OR_RETURN(Tensor turned, Tensor::Create(plain.type(), Shape{columns, rows}));
    const auto* from = static_cast<const T*>(plain.raw());
    auto* const to = static_cast<T*>(turned.mutable_raw());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) to[column * rows + row] = *from++;
    }
    return turned;
  }

  // x B + a row, as it is or with B turned.
  bool IsPlain(const Node& gemm) const {
    const Attributes& a = gemm.attributes;
    const auto b = graph_.initializers.find(gemm.inputs[1]);
    const bool is_matrix = b != graph_.initializers.end() && b->second.shape().rank() == 2;
    if (!gemm.Is("Gemm") || gemm.since_version < 7 || !is_matrix) return false;
    if (gemm.input(2) != kNoValue) {
      const auto row = graph_.initializers.find(gemm.inputs[2]);
      const bool is_row = row != graph_.initializers.end() && row->second.shape().rank() == 1 &&
                          row->second.shape()[0] == b->second.shape()[IsTurned(gemm) ? 0 : 1];
      if (!is_row) return false;
    }
    const int width = DataTypeBits(b->second.type());
    return a.Int("transA", 0) == 0 && (!IsTurned(gemm) || width == 16 || width == 32) &&
           a.Float("alpha", 1) == 1 && a.Float("beta", 1) == 1;
  }

  // The same axes but for the last, which are those of a matrix of so many rows and columns; x may
  // have its last axis in two parts.
  bool HaveSameRows(ValueId x, ValueId y, int64_t rows, int64_t columns) const {
    const auto& of_x = graph_.value(x).type.shape;
    const auto& of_y = graph_.value(y).type.shape;
    if (!of_x || !of_y || of_y->size() < 2) return false;
    if (of_x->size() != of_y->size() && of_x->size() != of_y->size() + 1) return false;
    for (size_t i = 0; i + 1 < of_y->size(); ++i) {
      const Dimension &a = (*of_x)[i], &b = (*of_y)[i];
      const bool same =
          a.known() ? b.known() && a.value == b.value : !a.symbol.empty() && a.symbol == b.symbol;
      if (!same) return false;
    }
    const Dimension& part = (*of_x)[of_x->size() - 2];
    const bool is_whole = of_x->size() == of_y->size();
    return (is_whole || part.known()) && of_x->back().known() && of_y->back().value == columns &&
           of_x->back().value * (is_whole ? 1 : part.value) == rows;
  }

  // x with as many axes as y: the node that made rows of x for the product joins its last two. `x`
  // itself where it has as many.
  ValueId JoinedRows(size_t gemm, ValueId x, ValueId y, int64_t width) {
    const SymbolicShape& of_y = *graph_.value(y).type.shape;
    if (graph_.value(x).type.shape->size() == of_y.size()) return x;
    ValueType type = graph_.value(x).type;
    type.shape = of_y;
    type.shape->back() = Dimension(width);
    std::vector<int64_t> shape(of_y.size(), 0);
    shape.back() = width;
    std::vector<Node> none;
    NodeWriter writer(graph_, none, graph_.value(x).name + "_rows");
    Node join;
    join.name = graph_.value(x).name + "_rows";
    join.op_type = "Reshape";
    join.since_version = 13;
    join.inputs = {x, writer.Integers(shape)};
    join.outputs = {graph_.AddUniqueValue(join.name, type)};
    joins_.emplace(gemm, std::move(join));
    return joins_.at(gemm).outputs[0];
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
    const Shape matrix = graph_.initializers.at(gemm.inputs[1]).shape();
    const int64_t rows = matrix[IsTurned(gemm) ? 1 : 0], columns = matrix[IsTurned(gemm) ? 0 : 1];
    if (!graph_.nodes[last].Is("Reshape") || !HaveSameRows(x, y, rows, columns)) return;
    const ValueId weights = IsTurned(gemm) ? Turned(gemm.inputs[1]) : gemm.inputs[1];
    if (weights == kNoValue) return;
    Node& product = graph_.nodes[n];
    product = Node();
    product.name = gemm.name;
    product.op_type = "MatMul";
    product.since_version = 13;
    product.inputs = {JoinedRows(n, x, y, rows), weights};
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
  std::map<size_t, Node> joins_;  // before the product at that position
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
