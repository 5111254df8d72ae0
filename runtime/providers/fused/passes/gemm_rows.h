// Pass: Gemm of rows that a Reshape flattened for it, and another gives their axes back.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Reshape, Gemm by constants, Reshape become MatMul and Add, which need neither, where the axes are
// known to be the same: so that what follows joins the product. Extended.
const GraphPass* GemmOfRows();

}  // namespace onnxd
