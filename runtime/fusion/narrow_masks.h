#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// A mask of FusedAttention that Expand, or And with what is all true, only made larger, and from
// which Where may have made numbers, is taken as it was before: attention repeats its rows by
// itself, and reads less. After AttentionFusion. All.
const GraphPass* NarrowMasks();

}  // namespace onnxd
