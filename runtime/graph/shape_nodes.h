// Which values of a graph are computed from shapes, a few numbers each: planning knows them before
// a run, so they are better left to the host.
#pragma once

#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// Whether the node reads nothing of its inputs but their shapes.
bool ReadsOnlyShapes(const Node& node);

// By value: what such nodes give and what follows from it and constants alone, of rank 0 or 1.
// Requires inferred types.
std::vector<bool> FindShapeValues(const Graph& graph);

// Whether all that the node gives is among these.
bool ComputesShapes(const Node& node, const std::vector<bool>& shape_values);

}  // namespace onnxd
