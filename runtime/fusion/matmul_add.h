#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// MatMul by a constant matrix, and a constant row added to it, becomes onnxd::MatMulAdd. After
// MergedProducts. Level extended.
const GraphPass* MatMulAddFusion();

}  // namespace onnxd
