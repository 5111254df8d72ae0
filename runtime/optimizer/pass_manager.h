// The ordered list of passes, and the loop that runs them.
#pragma once

#include <vector>

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// The passes that hold for every provider, in order.
std::vector<const GraphPass*> StandardPasses();

// Runs the passes whose level is at most `level`, in order and again until none changes the graph
// (at most 8 rounds). After each change the graph is verified and types are inferred; a pass that
// breaks the graph is kInternal and names itself.
Status RunPasses(const std::vector<const GraphPass*>& passes, OptimizationLevel level, Graph& graph,
                 const PassContext& context);

}  // namespace onnxd
