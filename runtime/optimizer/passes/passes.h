// The standard passes. Each is a constant object with a file and a test of its own.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Identity, inference Dropout and Cast to the same type: uses go to the input. Basic.
const GraphPass* IdentityElimination();
// Nodes whose inputs are all constants become initializers, within the evaluator's budget; random
// operators and results larger than their inputs (above 1 MB) stay. Basic.
const GraphPass* ConstantFolding();
// Nodes and initializers that nothing uses. Basic.
const GraphPass* DeadCodeElimination();
// Conv followed by BatchNormalization with constant parameters: scaled weights and a bias. Basic.
const GraphPass* ConvBatchNormalizationFusion();
// Conv (+ Add of a tensor of the same shape) (+ activation): com.microsoft FusedConv. Extended.
const GraphPass* ConvActivationFusion();

}  // namespace onnxd
