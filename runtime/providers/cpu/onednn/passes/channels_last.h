// The layout pass: convolutions and what lies between them work on [batch, height, width,
// channels].
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Rewrites float 2-D convolutions with constant weights into onnxd::ConvChannelsLast and carries
// the layout through pools, concatenations over channels and elementwise operators. Values that
// others need in the plain layout are transposed back by visible Transpose nodes. Level all.
const GraphPass* ChannelsLast();

// Operators on one tensor, and on two, that compute each element in the same way wherever it lies.
bool IsElementwiseInAnyLayout(const Node& node);
bool IsBinaryInAnyLayout(const Node& node);

}  // namespace onnxd
