#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Elementwise operators on floats of one shape that only feed each other become one
// onnxd::ElementwiseChain, whose results in between stay in the cache. Comes last: others look for
// some of these operators. Extended.
const GraphPass* ElementwiseChains();

}  // namespace onnxd
