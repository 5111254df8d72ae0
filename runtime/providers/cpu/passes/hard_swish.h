#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// x * HardSigmoid(x) with alpha 1/6 and beta 1/2, in float: HardSwish, which models of versions
// before 14 do not have. Level extended.
const GraphPass* HardSwishFusion();

}  // namespace onnxd
