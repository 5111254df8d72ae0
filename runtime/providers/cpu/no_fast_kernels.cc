#include "runtime/providers/cpu/fast_kernels.h"

namespace onnxd {

std::span<const KernelEntry> FastKernels() { return {}; }
std::vector<const GraphPass*> FastPasses() { return {}; }
bool HasFastQuantizedConv() { return false; }

}  // namespace onnxd
