#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// InstanceNormalization of groups of channels between two Reshapes, then * and + one constant per
// channel, as exporters write it: GroupNormalization-21, which the layout of convolutions passes
// through (passes/channels_last.h). Level all: few models can be saved with version 21 in them.
const GraphPass* GroupNormalizationFusion();

}  // namespace onnxd
