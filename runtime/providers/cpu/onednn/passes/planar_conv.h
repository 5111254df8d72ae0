#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// A transposition of images of few channels that only a convolution reads becomes part of it:
// ConvChannelsLast -> PlanarConv.
const GraphPass* PlanarConvFusion();

}  // namespace onnxd
