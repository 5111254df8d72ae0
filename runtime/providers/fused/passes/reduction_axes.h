// Reductions whose axes are a constant operand get them as an attribute.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Reduce*-18 and ReduceSum-13 become the version before, which lacks nothing but that operand, so
// that a kernel knows its rows when it is made. Level extended.
const GraphPass* ReductionAxesAsAttribute();

}  // namespace onnxd
