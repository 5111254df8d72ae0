#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Transpositions of rows, around products of each row by itself, go where they cost nothing: those
// before a product behind it, where attention reads queries, keys and values at any strides; those
// behind a product of what attention gives into the order in which attention writes. After
// AttentionFusion and GemmOfRows. Level all.
const GraphPass* TransposedRows();

}  // namespace onnxd
