#include "runtime/fusion/dequantize_folding.h"

#include <algorithm>

namespace onnxd {
namespace {

bool IsConstant(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId id) { return id == kNoValue || graph.IsInitializer(id); });
}

bool HasOneScale(const Graph& graph, const Node& node) {
  const auto scale = graph.initializers.find(node.input(1));
  return scale != graph.initializers.end() && scale->second.shape().ElementCount() == 1 &&
         node.attributes.Int("block_size", 0) == 0;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "dequantize_folding"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    bool changed = SwapWithGather(graph);
    for (Node& node : graph.nodes) {
      if (!node.Is("DequantizeLinear") || !IsConstant(graph, node)) continue;
      changed = Fold(graph, node, context) || changed;
    }
    return changed;
  }

 private:
  // Gather of a dequantized table becomes the dequantization of what it gathers.
  static bool SwapWithGather(Graph& graph) {
    const GraphIndex index(graph);
    bool changed = false;
    const size_t count = graph.nodes.size();
    for (size_t i = 0; i < count; ++i) {
      Node& gather = graph.nodes[i];
      if (!gather.Is("Gather") || index.producer(gather.inputs[0]) < 0) continue;
      const Node& table = graph.nodes[static_cast<size_t>(index.producer(gather.inputs[0]))];
      if (!table.Is("DequantizeLinear") || !IsConstant(graph, table) ||
          !HasOneScale(graph, table)) {
        continue;
      }
      Node dequantize = table;
      const ValueId codes =
          graph.AddUniqueValue(graph.value(gather.outputs[0]).name + "_quantized");
      dequantize.inputs[0] = codes;
      dequantize.outputs = {gather.outputs[0]};
      gather.inputs[0] = table.inputs[0];
      gather.outputs = {codes};
      graph.nodes.push_back(std::move(dequantize));
      changed = true;
    }
    return changed;
  }

  static bool Fold(Graph& graph, Node& node, const PassContext& context) {
    std::vector<Tensor> inputs;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) {
        inputs.emplace_back();
        continue;
      }
      auto tensor = graph.initializers.at(id).Materialize();
      if (!tensor.ok()) return false;
      inputs.push_back(std::move(*tensor));
    }
    const auto results = context.evaluate(node, inputs);
    if (!results || results->size() != 1) return false;
    // The value gets another producer: an initializer of its own name would be its second one.
    const ValueId floats = node.outputs[0];
    node.op_type = "Identity";
    node.since_version = 1;
    node.attributes = {};
    node.inputs = {graph.AddInitializer(graph.value(floats).name + "_folded", (*results)[0])};
    return true;
  }
};

}  // namespace

const GraphPass* DequantizeFolding() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
