// Operators that give the same elements, in their order, another shape.
#pragma once

#include "runtime/graph/graph.h"

namespace onnxd {

// Reshape, Flatten, Squeeze or Unsqueeze; the first input has the elements.
bool IsRegrouping(const Node& node);

}  // namespace onnxd
