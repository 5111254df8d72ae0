// A graph for people to read, a node a line.
#pragma once

#include <string>

#include "runtime/graph/graph.h"

namespace onnxd {

// "y: float[batch, 10] = com.microsoft::Gelu(x, w) approximate=tanh  # name"; subgraphs follow the
// node that owns them, indented. Control characters in names are kept: escape before printing.
std::string GraphText(const Graph& graph);

}  // namespace onnxd
