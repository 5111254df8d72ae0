#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// What a body captures of the constants around it becomes its own, so that kernels in it can be made
// for them. Basic.
const GraphPass* ConstantCaptures();

}  // namespace onnxd
