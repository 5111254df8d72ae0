// What an optional library adds to the CPU provider: kernels that are tried before the plain ones,
// and the passes that feed them. Empty in a build without the library.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/graph/graph_pass.h"
#include "runtime/kernel/kernel_registry.h"

namespace onnxd {

std::span<const KernelEntry> FastKernels();
std::vector<const GraphPass*> FastPasses();
// Precisions that FastPasses brings about and that are faster than float32 on this processor.
bool FastKernelsCompute(Precision precision);
// The library's version and instruction set, on which packed weights depend.
std::string FastKernelsIdentity();
// Whether a QLinearConv is computed faster than a Conv of floats here.
bool TakesQuantizedConv(const Graph& graph, const Node& node);

}  // namespace onnxd
