// Operators that give the same elements, in their order, another shape.
#pragma once

#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// Reshape, Flatten, Squeeze or Unsqueeze; the first input has the elements.
bool IsRegrouping(const Node& node);

// A Reshape of version 5 or later, as a pass writes it in a model of such; `target` becomes an
// initializer. The output is the caller's to set.
Node ReshapeNode(Graph& graph, int version, ValueId x, const std::vector<int64_t>& target,
                 const std::string& name);

}  // namespace onnxd
