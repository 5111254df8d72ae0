// Pass: products in bfloat16, where the session asks for that precision.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// bf16: convolutions and products with large constant matrices read and write bfloat16, and where the
// processor has tiles FusedAttention does, but for its masks and softmax; what only moves elements
// between them moves bfloat16. Cast nodes stand where float begins and ends, and pairs of them
// cancel, so that neighbours hand each other bfloat16. Biases, sums, normalisation and all else stay
// float. bf16x3: products with large constant matrices become MatMulBfloat16x3.
const GraphPass* ReducedPrecision();

}  // namespace onnxd
