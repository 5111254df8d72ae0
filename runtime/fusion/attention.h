// softmax(scale * Q K^T + mask) V becomes one node.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// MatMul (* number) (* number of a head) (+ mask, or two, or Where of a condition) Softmax (Where
// IsNaN 0) MatMul, with the transpositions of queries, keys, values and result that keep the last
// axis, becomes onnxd::FusedAttention. Where keys, or values and result the other way round (values
// times turned weights), come turned, Transpose nodes turn them if that is less than the scores are.
// Of float, with `halves` of float16 and bfloat16, too. Level extended.
const GraphPass* AttentionFusion(bool halves);

}  // namespace onnxd
