#include "runtime/ops/fused_graph.h"

#include <algorithm>
#include <map>

#include "runtime/ops/shape_inference.h"

namespace onnxd {

Result<std::vector<ValueType>> InferFusedGraph(const Graph& graph,
                                               std::span<const ValueType> inputs,
                                               std::span<const Tensor* const> known) {
  std::vector<ValueType> types(graph.value_count());
  std::vector<const Tensor*> elements(graph.value_count(), nullptr);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    types[static_cast<size_t>(graph.inputs[i])] = inputs[i];
    elements[static_cast<size_t>(graph.inputs[i])] = known[i];
  }
  for (const Node& node : graph.nodes) {
    std::vector<ValueType> node_inputs;
    std::vector<const Tensor*> node_known;
    for (const ValueId id : node.inputs) {
      const auto at = static_cast<size_t>(id);
      node_inputs.push_back(id == kNoValue ? ValueType{} : types[at]);
      node_known.push_back(id == kNoValue ? nullptr : elements[at]);
    }
    ONNXD_ASSIGN_OR_RETURN(const auto outputs, InferNode(node, node_inputs, node_known));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) types[static_cast<size_t>(node.outputs[i])] = outputs[i];
    }
  }
  return types;
}

Node FuseNodes(const Graph& graph, std::span<const size_t> positions,
               const std::vector<ValueId>& outputs) {
  auto fused = std::make_shared<Graph>();
  Node result;
  result.op_type = "Fused";
  result.domain = "onnxd";
  result.since_version = 1;
  result.outputs = outputs;
  std::map<ValueId, ValueId> inner;  // by value of the graph
  for (const size_t position : positions) {
    for (const ValueId id : graph.nodes[position].outputs) {
      if (id != kNoValue) inner[id] = fused->AddValue(graph.value(id).name, graph.value(id).type);
    }
  }
  for (const size_t position : positions) {
    const Node& node = graph.nodes[position];
    result.name += result.name.empty() ? node.name : "+" + node.name;
    Node copy = node;
    copy.provider.clear();
    for (ValueId& id : copy.inputs) {
      if (id == kNoValue) continue;
      const auto [found, added] = inner.try_emplace(id, kNoValue);
      if (added) {
        found->second = fused->AddValue(graph.value(id).name, graph.value(id).type);
        fused->inputs.push_back(found->second);
        result.inputs.push_back(id);
      }
      id = found->second;
    }
    for (ValueId& id : copy.outputs) {
      if (id != kNoValue) id = inner[id];
    }
    fused->nodes.push_back(std::move(copy));
  }
  for (const ValueId id : outputs) fused->outputs.push_back(inner[id]);
  result.attributes.Set("graph", FusedGraph(std::move(fused)));
  return result;
}

}  // namespace onnxd
