#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Mul of a large image's channels by gates, which only a 1 x 1 ConvChannelsLast reads, becomes part
// of it: onnxd::GatedConv. All.
const GraphPass* GatedConvFusion();

}  // namespace onnxd
