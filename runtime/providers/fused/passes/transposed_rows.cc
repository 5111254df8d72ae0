#include "runtime/providers/fused/passes/transposed_rows.h"

#include <algorithm>
#include <optional>
#include <set>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/ops/strided_view.h"

namespace onnxd {
namespace {

using Order = std::vector<int64_t>;

ValueType Permuted(ValueType type, const Order& order) {
  if (!type.shape || type.shape->size() != order.size()) return type;
  SymbolicShape shape;
  for (const int64_t axis : order) shape.push_back((*type.shape)[static_cast<size_t>(axis)]);
  type.shape = std::move(shape);
  return type;
}

Order Inverse(const Order& order) {
  Order inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return inverse;
}

class Rewriting {
 public:
  explicit Rewriting(Graph& graph) : graph_(graph) {}

  bool Run() {
    // Each looks at the whole graph: more than networks have would take a hostile one too long.
    constexpr int kMost = 512;
    int rewritten = 0;
    while (rewritten < kMost && RewriteOne()) ++rewritten;
    return rewritten > 0;
  }

 private:
  bool RewriteOne() {
    const GraphMatcher match(graph_);
    match_ = &match;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.Is("Transpose") || seen_.contains(node.outputs[0])) continue;
      const auto order = TransposeOrder(graph_, node);
      if (!order || order->size() < 3 || order->back() + 1 != static_cast<int64_t>(order->size())) {
        continue;
      }
      if (Sink(n, *order) || Hoist(n, *order)) return true;
    }
    return false;
  }

  // The nodes that read a value's elements; nullopt where the graph gives it, or a body reads it.
  // Those of shapes stay on the host, and are seen as of another domain here.
  std::optional<std::vector<size_t>> Readers(ValueId id) const {
    std::vector<size_t> readers;
    int uses = 0;
    for (const int consumer : match_->index().consumers(id)) {
      const auto position = static_cast<size_t>(consumer);
      const Node& node = graph_.nodes[position];
      uses += static_cast<int>(std::count(node.inputs.begin(), node.inputs.end(), id));
      if (node.op_type != "Shape" && node.op_type != "Size") readers.push_back(position);
    }
    return uses == match_->index().use_count(id) ? std::optional(readers) : std::nullopt;
  }

  std::optional<size_t> OnlyReader(ValueId id) const {
    const auto readers = Readers(id);
    return readers && readers->size() == 1 ? std::optional((*readers)[0]) : std::nullopt;
  }

  bool IsRowMatMul(const Node& node) const {
    if (!node.Is("MatMul")) return false;
    const auto matrix = graph_.initializers.find(node.inputs[1]);
    return matrix != graph_.initializers.end() && matrix->second.shape().rank() == 2;
  }

  bool AddsRow(const Node& node, ValueId product) const {
    if (!node.Is("Add") || node.since_version < 7) return false;
    const auto operands = match_->BesideConstant(node);
    return operands && operands->value == product &&
           graph_.initializers.at(operands->constant).shape().rank() == 1;
  }

  // Whether only attention reads it, behind nodes that move elements.
  bool GoesToAttention(ValueId id, int depth = 0) const {
    constexpr int kMostNodes = 16;
    const auto readers = Readers(id);
    if (!readers || readers->empty() || depth > kMostNodes) return false;
    return std::all_of(readers->begin(), readers->end(), [&](size_t n) {
      const Node& node = graph_.nodes[n];
      if (node.Is("FusedAttention", "onnxd")) {
        return std::find(node.inputs.begin() + 3, node.inputs.end(), id) == node.inputs.end();
      }
      return MovesElements(node) && node.inputs[0] == id &&
             std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
               return output == kNoValue || GoesToAttention(output, depth + 1);
             });
    });
  }

  // Transpose, MatMul (, Add), attention: the transposition goes behind the product.
  bool Sink(size_t transpose, const Order& order) {
    const ValueId turned = graph_.nodes[transpose].outputs[0];
    const auto matmul = OnlyReader(turned);
    if (!matmul || !IsRowMatMul(graph_.nodes[*matmul]) ||
        graph_.nodes[*matmul].inputs[0] != turned) {
      return false;
    }
    size_t last = *matmul;
    const auto next = OnlyReader(graph_.nodes[last].outputs[0]);
    if (next && AddsRow(graph_.nodes[*next], graph_.nodes[last].outputs[0])) last = *next;
    const ValueId result = graph_.nodes[last].outputs[0];
    if (!GoesToAttention(result)) return false;
    const Order back = Inverse(order);
    Node& product = graph_.nodes[*matmul];
    product.inputs[0] = graph_.nodes[transpose].inputs[0];
    const auto rename = [&](ValueId id) {
      const ValueInfo info = graph_.value(id);
      return graph_.AddUniqueValue(info.name + "_rows", Permuted(info.type, back));
    };
    if (last != *matmul) {
      const ValueId before = product.outputs[0], after = rename(before);
      product.outputs[0] = after;
      for (ValueId& id : graph_.nodes[last].inputs) {
        if (id == before) id = after;
      }
    }
    const ValueId rows = rename(result);
    graph_.nodes[last].outputs[0] = rows;
    std::vector<Node> behind;
    NodeWriter(graph_, behind, graph_.value(result).name)
        .AddTo(result, "Transpose", {rows}, NodeWriter::Order(order));
    seen_.insert(result);
    graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                        std::move(behind[0]));
    return true;
  }

  // Attention, Reshape that joins the last axes, MatMul (, Add), Transpose: attention writes in the
  // order that is wanted.
  bool Hoist(size_t transpose, const Order& order) {
    const ValueId turned = graph_.nodes[transpose].outputs[0];
    const ValueId before = graph_.nodes[transpose].inputs[0];
    if (match_->index().use_count(before) != 1) return false;
    const Node* last = match_->Producer(before, "Add");
    ValueId product = before;
    if (last != nullptr) {
      const auto operands = match_->BesideConstant(*last);
      if (!operands || !AddsRow(*last, operands->value)) return false;
      product = operands->value;
      if (match_->index().use_count(product) != 1) return false;
    }
    const Node* matmul = match_->Producer(product, "MatMul");
    if (matmul == nullptr || !IsRowMatMul(*matmul)) return false;
    const ValueId joined = matmul->inputs[0];
    const Node* reshape = match_->Producer(joined, "Reshape");
    if (reshape == nullptr || match_->index().use_count(joined) != 1 ||
        match_->index().use_count(reshape->inputs[0]) != 1) {
      return false;
    }
    const ValueId result = reshape->inputs[0];
    const int producer = match_->index().producer(result);
    if (producer < 0 || !JoinsLast(result, joined, order.size())) return false;
    Node& attention = graph_.nodes[static_cast<size_t>(producer)];
    if (!attention.Is("FusedAttention", "onnxd")) return false;
    Order written = attention.attributes.Ints("output_perm");
    if (written.size() != order.size() + 1) return false;
    Order wide = order;
    wide.push_back(static_cast<int64_t>(order.size()));
    Order composed;
    for (const int64_t axis : wide) composed.push_back(written[static_cast<size_t>(axis)]);
    const size_t of_reshape = PositionOf(joined), of_matmul = PositionOf(product);
    const bool has_sum = last != nullptr;
    const size_t of_sum = has_sum ? PositionOf(before) : 0;
    const auto renamed = [&](ValueId id, const Order& by) {
      const ValueInfo info = graph_.value(id);
      return graph_.AddUniqueValue(info.name + "_turned", Permuted(info.type, by));
    };
    attention.attributes.Set("output_perm", composed);
    attention.outputs[0] = renamed(result, wide);
    Node& join = graph_.nodes[of_reshape];
    std::vector<Node> none;
    Order shape(order.size(), 0);
    shape.back() = graph_.value(joined).type.shape->back().value;
    const ValueId shape_id =
        NodeWriter(graph_, none, graph_.value(joined).name + "_turned").Integers(shape);
    join.attributes = Attributes();
    join.inputs = {attention.outputs[0], shape_id};
    join.outputs[0] = renamed(joined, order);
    Node& multiply = graph_.nodes[of_matmul];
    multiply.inputs[0] = join.outputs[0];
    if (has_sum) {
      multiply.outputs[0] = renamed(product, order);
      for (ValueId& id : graph_.nodes[of_sum].inputs) {
        if (id == product) id = multiply.outputs[0];
      }
      graph_.nodes[of_sum].outputs[0] = turned;
    } else {
      multiply.outputs[0] = turned;
    }
    graph_.nodes.erase(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(transpose));
    return true;
  }

  // The same axes, but that the last two of `wide` are one of `narrow`.
  bool JoinsLast(ValueId wide, ValueId narrow, size_t rank) const {
    const auto& from = graph_.value(wide).type.shape;
    const auto& to = graph_.value(narrow).type.shape;
    if (!from || !to || from->size() != rank + 1 || to->size() != rank) return false;
    for (size_t i = 0; i + 1 < rank; ++i) {
      const Dimension &a = (*from)[i], &b = (*to)[i];
      const bool same =
          a.known() ? b.known() && a.value == b.value : !a.symbol.empty() && a.symbol == b.symbol;
      if (!same) return false;
    }
    const Dimension &a = (*from)[rank - 1], &b = (*from)[rank], &joined = to->back();
    return a.known() && b.known() && joined.known() && a.value * b.value == joined.value;
  }

  size_t PositionOf(ValueId id) const { return static_cast<size_t>(match_->index().producer(id)); }

  Graph& graph_;
  const GraphMatcher* match_ = nullptr;  // of this rewriting
  std::set<ValueId> seen_;               // what transpositions that were moved give
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "transposed_rows"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    return Rewriting(graph).Run();
  }
};

}  // namespace

const GraphPass* TransposedRows() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
