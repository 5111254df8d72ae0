// Operators that compute each element in the same way wherever it lies.
#pragma once

#include "runtime/graph/graph.h"

namespace onnxd {

// On one tensor; what else they read are single numbers.
bool IsElementwiseInAnyLayout(const Node& node);
// On two that broadcast as of version 7 of the operators.
bool IsBinaryInAnyLayout(const Node& node);

}  // namespace onnxd
