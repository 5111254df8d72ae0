// Operators that compute over rows of neighbouring elements, which fused kernels keep together.
#pragma once

#include <string>

#include "runtime/graph/graph.h"

namespace onnxd {

// LayerNormalization and RMSNormalization with one output, Softmax and LogSoftmax along the last
// axis, and reductions of the last axes by constants; of floating-point types that sum up in f32.
bool IsRowOperator(const Graph& graph, const Node& node);

// Whether it gives a number for a row, not a row.
bool IsReduction(const Node& node);

// How many axes from the last one on are a row of an input of that rank.
int RowAxes(const Node& node, int rank);

}  // namespace onnxd
