// Activations of convolutions that com.microsoft FusedConv does not have, but our kernels do.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Conv or FusedConv without an activation, then HardSwish or x * Sigmoid(x): FusedConv with
// activation HardSwish or Silu. Level extended.
const GraphPass* ConvGateFusion();

}  // namespace onnxd
