// onnxd::Fused: neighbouring nodes that a provider compiles to one kernel, kept as the graph that
// they were. Its inputs and outputs are the node's, by position; it has no initializers.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// Types by value of the graph, from those of its inputs; `known`: elements of inputs, or null.
Result<std::vector<ValueType>> InferFusedGraph(const Graph& graph,
                                               std::span<const ValueType> inputs,
                                               std::span<const Tensor* const> known);

// The nodes at these positions, in their order, as one: onnxd::Fused with the values that they read
// from outside as inputs and `outputs` as outputs, which other nodes read. Requires nodes that no
// path leads out of and back into.
Node FuseNodes(const Graph& graph, std::span<const size_t> positions,
               const std::vector<ValueId>& outputs);

}  // namespace onnxd
