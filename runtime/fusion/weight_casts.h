#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Weights of 8 bits that the model itself makes floats of, Cast and Mul by a scale or by one for each
// index along an axis: DequantizeLinear. Of a table of which Gather takes rows, the rows alone are
// cast and scaled. Comes before passes for quantized operators. Basic.
const GraphPass* WeightCasts();

}  // namespace onnxd
