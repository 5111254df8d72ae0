// Nodes that compute in another type of floats than the model says: what passes for reduced
// precision share with the one that takes 16-bit models to float.
#pragma once

#include <functional>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

struct RetypingRules {
  DataType from = DataType::kFloat;
  DataType to = DataType::kUndefined;
  const char* suffix = "";  // of the names of values in the new type
  // Inputs that the node is to read in it; its outputs of the old type follow. Empty: it stays as
  // it is.
  std::function<std::vector<size_t>(const Graph&, const Node&)> inputs;
  // Converts constants; where it is empty, ConvertElements does.
  std::function<void(const void* from, void* to, int64_t count)> convert = {};
  // Operators of a provider's own that move elements, as Transpose does.
  std::function<bool(const Node&)> also_moves = {};
  // Nodes with such inputs whose result is of the old type nevertheless where nobody reads it in
  // the new one.
  std::function<bool(const Node&)> can_end_in_float = {};
};

// Cast nodes stand where the old type begins and ends, and pairs of them cancel, so that neighbours
// hand each other values of the new one, also through nodes that only move elements. Constants are
// converted when someone needs them. Returns whether the graph changed. A node that ends in float
// has the attribute output_dtype.
bool RetypeNodes(Graph& graph, const RetypingRules& rules);

}  // namespace onnxd
