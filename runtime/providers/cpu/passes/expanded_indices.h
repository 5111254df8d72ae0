#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// ScatterElements whose indices an Expand makes as large as its updates, as PyTorch's exporters
// write additions and copies of whole rows: onnxd::ScatterElementsBroadcast of what is expanded.
// Level extended.
const GraphPass* ExpandedIndices();

}  // namespace onnxd
