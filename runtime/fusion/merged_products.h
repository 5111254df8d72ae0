#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Products of one value with several constant matrices (and rows added to them), which
// FusedAttention reads as queries, keys and values, become one product and a Split: that fills a
// device better, and the attention reads the parts where they are. After AttentionFusion. All.
const GraphPass* MergedProducts();

}  // namespace onnxd
