// Nodes of floats that compute in a type of 16 bits instead: what passes for reduced precision
// share.
#pragma once

#include <functional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

struct NarrowingRules {
  DataType type = DataType::kUndefined;  // kFloat16 or kBfloat16
  const char* suffix = "";               // of the names of narrow values
  // Inputs that the node is to read in it; its outputs become narrow too. Empty: it stays as it is.
  std::function<std::vector<size_t>(const Graph&, const Node&)> inputs;
  // Rounds floats to the type; where it is empty, ConvertElements does.
  std::function<void(const float* from, void* to, int64_t count)> round = {};
  // Operators of a provider's own that move elements, as Transpose does.
  std::function<bool(const Node&)> also_moves = {};
  // Nodes with such inputs whose result is float nevertheless where nobody reads it narrow.
  std::function<bool(const Node&)> can_end_in_float = {};
};

// Cast nodes stand where float begins and ends, and pairs of them cancel, so that neighbours hand
// each other narrow values, also through nodes that only move elements. Constants are rounded once.
// Returns whether the graph changed. A node that ends in float has the attribute output_dtype.
Result<bool> NarrowNodes(Graph& graph, const NarrowingRules& rules);

}  // namespace onnxd
