#include "runtime/graph/shape_nodes.h"

#include <algorithm>

namespace onnxd {
namespace {

bool HasBody(const Node& node) {
  const auto& entries = node.attributes.entries();
  return std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
    return std::holds_alternative<std::shared_ptr<Graph>>(entry.second);
  });
}

// Of shapes, or of numbers that come from them, and constants.
bool FollowsFromShapes(const Graph& graph, const Node& node, const std::vector<bool>& values) {
  if (HasBody(node)) return false;
  if (ReadsOnlyShapes(node)) return true;
  bool any = false;
  for (const ValueId id : node.inputs) {
    if (id == kNoValue || graph.IsInitializer(id)) continue;
    if (!values[static_cast<size_t>(id)]) return false;
    any = true;
  }
  return any;
}

}  // namespace

bool ReadsOnlyShapes(const Node& node) { return node.Is("Shape") || node.Is("Size"); }

std::vector<bool> FindShapeValues(const Graph& graph) {
  std::vector<bool> values(graph.value_count(), false);
  for (const Node& node : graph.nodes) {
    if (!FollowsFromShapes(graph, node, values)) continue;
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const ValueType& type = graph.value(id).type;
      values[static_cast<size_t>(id)] = type.is_tensor() && type.shape && type.shape->size() <= 1;
    }
  }
  return values;
}

bool ComputesShapes(const Node& node, const std::vector<bool>& shape_values) {
  bool any = false;
  for (const ValueId id : node.outputs) {
    if (id == kNoValue) continue;
    if (!shape_values[static_cast<size_t>(id)]) return false;
    any = true;
  }
  return any;
}

}  // namespace onnxd
