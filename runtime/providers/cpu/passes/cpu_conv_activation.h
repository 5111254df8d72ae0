// Activations of convolutions that com.microsoft FusedConv does not have, but our kernels do.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Conv or FusedConv without an activation, then HardSwish, Gelu, Swish or x * Sigmoid(x): FusedConv
// with activation HardSwish, Gelu, FastGelu or Silu. Level extended.
const GraphPass* CpuConvActivationFusion();

}  // namespace onnxd
