#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Weights of 8 or 16 bits that the model itself makes floats of with Cast: floats that are made once.
// With a Mul behind it by a scale, or by one for each index along an axis: DequantizeLinear. Of a
// table of which Gather takes rows, the rows alone are cast and scaled. Comes before passes for
// quantized operators. Basic.
const GraphPass* WeightCasts();

}  // namespace onnxd
