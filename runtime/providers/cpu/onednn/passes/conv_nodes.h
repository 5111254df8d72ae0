// What passes over ConvChannelsLast of floats ask.
#pragma once

#include "runtime/graph/graph.h"
#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"

namespace onnxd {

// Of the constant weights, [out, in / group, height, width], of a ConvChannelsLast of floats; null
// for other nodes.
inline const Shape* ConvWeightShape(const Graph& graph, const Node& node) {
  if (!node.Is("ConvChannelsLast", "onnxd") || !IsFloat(graph, node.outputs[0])) return nullptr;
  const auto weights = graph.initializers.find(node.inputs[1]);
  if (weights == graph.initializers.end() || weights->second.shape().rank() != 4) return nullptr;
  return &weights->second.shape();
}

inline bool IsPointwiseConv(const Graph& graph, const Node& node) {
  const Shape* w = ConvWeightShape(graph, node);
  return w != nullptr && onednn::IsPointwise(node.attributes, *w);
}

// The node whose result the first input is, where nothing else reads it; null otherwise.
inline const Node* ProducerForItAlone(const Graph& graph, const GraphIndex& index,
                                      const Node& node) {
  if (node.inputs.empty() || node.inputs[0] == kNoValue) return nullptr;
  const int producer = index.producer(node.inputs[0]);
  if (producer < 0 || index.use_count(node.inputs[0]) != 1) return nullptr;
  return &graph.nodes[static_cast<size_t>(producer)];
}

}  // namespace onnxd
