// Pass: products in float16 or bfloat16, where the session asks for that precision.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Products of floats (MatMul, Gemm, Conv and their like) read and write the narrow type, which
// tensor cores multiply with sums of floats; so does what only moves elements between them. Cast
// nodes stand where float begins and ends, and become part of the kernels beside them. All else
// stays float.
const GraphPass* NarrowProducts();

}  // namespace onnxd
