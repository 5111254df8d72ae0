#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// DequantizeLinear of constants that nothing computes in integers becomes floats, whatever their size:
// kernels read those in every run. A table of which Gather takes rows stays as it is, and the rows are
// dequantized instead. Basic.
const GraphPass* DequantizeFolding();

}  // namespace onnxd
