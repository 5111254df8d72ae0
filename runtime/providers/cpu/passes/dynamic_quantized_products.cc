#include <algorithm>

#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/passes/quantized_operators.h"

namespace onnxd {
namespace {

class Fusion {
 public:
  explicit Fusion(Graph& graph) : graph_(graph), match_(graph) {}

  bool Run() {
    bool changed = false;
    for (Node& node : graph_.nodes) {
      if (node.Is("Mul")) changed = FuseScale(node) || changed;
    }
    return changed;
  }

 private:
  bool IsUsedOnce(ValueId id) const { return match_.index().use_count(id) == 1; }

  // node = Cast(MatMulInteger) * Mul(a_scale, b_scale)
  bool FuseScale(Node& node) {
    for (const size_t side : {0, 1}) {
      const Node* cast = match_.Producer(node.inputs[side], "Cast");
      const Node* scale = match_.Producer(node.inputs[1 - side], "Mul");
      if (cast == nullptr || scale == nullptr || !IsUsedOnce(cast->outputs[0]) ||
          !IsFloat(graph_, cast->outputs[0])) {
        continue;
      }
      const Node* product = match_.Producer(cast->inputs[0], "MatMulInteger");
      if (product == nullptr || !IsUsedOnce(product->outputs[0])) continue;
      const auto weights = graph_.initializers.find(product->inputs[1]);
      const auto scales = match_.BesideConstant(*scale);
      if (weights == graph_.initializers.end() || weights->second.shape().rank() != 2 || !scales ||
          !IsOneNumber(scales->value) ||
          !FitsColumns(scales->constant, weights->second.shape()[1])) {
        continue;
      }
      node.op_type = "MatMulIntegerToFloat";
      node.domain = "com.microsoft";
      node.since_version = 1;
      node.inputs = {product->inputs[0], product->inputs[1], scales->value,
                     scales->constant,   product->input(2),  product->input(3)};
      return true;
    }
    return false;
  }

  bool IsOneNumber(ValueId id) const {
    const auto& shape = graph_.value(id).type.shape;
    if (!shape || !IsFloat(graph_, id)) return false;
    return std::all_of(shape->begin(), shape->end(),
                       [](const Dimension& d) { return d.known() && d.value == 1; });
  }

  bool FitsColumns(ValueId id, int64_t columns) const {
    const Shape& shape = graph_.initializers.at(id).shape();
    if (graph_.initializers.at(id).type() != DataType::kFloat) return false;
    return shape.ElementCount() == 1 ||
           (shape.ElementCount() == columns && shape[shape.rank() - 1] == columns);
  }

  Graph& graph_;
  GraphMatcher match_;
};

// MatMulIntegerToFloat + row takes the row as its bias.
bool FuseBias(Graph& graph) {
  const GraphIndex index(graph);
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (!node.Is("Add") || node.since_version < 7) continue;
    for (const size_t side : {0, 1}) {
      const int producer = index.producer(node.inputs[side]);
      if (producer < 0) continue;
      const Node& product = graph.nodes[static_cast<size_t>(producer)];
      const auto bias = graph.initializers.find(node.inputs[1 - side]);
      if (!product.Is("MatMulIntegerToFloat", "com.microsoft") || product.input(6) != kNoValue ||
          index.use_count(product.outputs[0]) != 1 || bias == graph.initializers.end()) {
        continue;
      }
      const auto weights = graph.initializers.find(product.inputs[1]);
      const Shape& row = bias->second.shape();
      if (weights == graph.initializers.end() || weights->second.shape().rank() != 2 ||
          bias->second.type() != DataType::kFloat || row.rank() < 1 ||
          row[row.rank() - 1] != weights->second.shape()[1] ||
          row.ElementCount() != row[row.rank() - 1] ||
          row.rank() > RankOf(graph, node.inputs[side]).value_or(0)) {
        continue;
      }
      const ValueId row_id = node.inputs[1 - side];
      Node fused = product;
      fused.inputs.resize(6, kNoValue);
      fused.inputs.push_back(row_id);
      fused.outputs = node.outputs;
      fused.name = node.name;
      node = std::move(fused);
      changed = true;
      break;
    }
  }
  return changed;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "dynamic_quantized_products"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const bool scaled = Fusion(graph).Run();
    return FuseBias(graph) || scaled;
  }
};

}  // namespace

const GraphPass* DynamicQuantizedProducts() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
