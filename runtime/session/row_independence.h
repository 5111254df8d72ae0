// Whether the rows of a model's inputs (their first axis) may belong to different requests.
#pragma once

#include <string>

#include "runtime/graph/graph.h"

namespace onnxd {

// Why rows must not be computed together; empty when nothing in the graph speaks against it: the
// first dimension of all inputs and outputs is one free dimension, and no operator is known to look
// at several rows at once. That is no proof. Requires inferred shapes.
std::string WhyRowsDepend(const Graph& graph);

}  // namespace onnxd
