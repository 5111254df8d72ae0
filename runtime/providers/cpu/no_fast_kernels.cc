#include "runtime/providers/cpu/fast_kernels.h"

namespace onnxd {

std::span<const KernelEntry> FastKernels() { return {}; }
std::vector<const GraphPass*> FastPasses() { return {}; }
std::string FastKernelsIdentity() { return "alone"; }
bool FastKernelsCompute(Precision) { return false; }
bool TakesQuantizedConv(const Graph&, const Node&) { return false; }

}  // namespace onnxd
