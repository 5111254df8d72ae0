// Neighbouring nodes become onnxd::Fused, which is one kernel.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// In this order, each with as many neighbours as there are: products with the elementwise nodes
// behind them; rows (row_operator.h) with those before and behind; what is left of elementwise
// nodes. Of values that are read elsewhere, too, the kernel writes them out. Level extended.
const GraphPass* NeighbourFusion();

}  // namespace onnxd
