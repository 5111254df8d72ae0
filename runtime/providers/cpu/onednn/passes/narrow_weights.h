// Matrices that 16 bits hold exactly stay in 16 bits.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Products of floats with a large constant matrix whose elements are all float16, or all bfloat16,
// as those of models of 16 bits that compute in floats: onnxd::MatMulNarrowWeights, which reads
// half the bytes and rounds nothing. Level all.
const GraphPass* NarrowWeights();

}  // namespace onnxd
