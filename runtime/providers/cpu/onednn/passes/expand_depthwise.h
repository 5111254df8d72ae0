#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// A 1 x 1 ConvChannelsLast that only a depthwise one reads, where what lies between would not stay
// in the cache: onnxd::ExpandDepthwise. All.
const GraphPass* ExpandDepthwiseFusion();

}  // namespace onnxd
