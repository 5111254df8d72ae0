#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// A 1 x 1 ConvChannelsLast that only a depthwise one reads, where what lies between would not stay
// in the cache: onnxd::ExpandDepthwise. The same of a PlanarConv: onnxd::PlanarDepthwise. Either
// takes a 1 x 1 ConvChannelsLast to few channels that alone reads it, with its sum; and makes the
// means of a GlobalAveragePoolChannelsLast. All.
const GraphPass* ExpandDepthwiseFusion();

}  // namespace onnxd
