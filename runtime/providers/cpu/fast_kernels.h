// What an optional library adds to the CPU provider: kernels that are tried before the plain ones,
// and the passes that feed them. Empty in a build without the library.
#pragma once

#include <span>
#include <vector>

#include "runtime/graph/graph_pass.h"
#include "runtime/kernel/kernel_registry.h"

namespace onnxd {

std::span<const KernelEntry> FastKernels();
std::vector<const GraphPass*> FastPasses();
// Whether a QLinearConv is computed faster than a Conv of floats here.
bool TakesQuantizedConv(const Graph& graph, const Node& node);

}  // namespace onnxd
