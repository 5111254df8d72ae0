// Arithmetic on 16-bit and smaller floats: inputs are converted to float, a float kernel computes,
// and each output is rounded once.
#pragma once

#include "runtime/kernel/kernel.h"

namespace onnxd {

// Whether an operand of the node has a float type below 32 bits.
bool HasNarrowFloats(const KernelInfo& info);

// The kernel that `make` gives for the same node with float in place of every narrower float type,
// wrapped in the conversions. Declines what `make` declines.
Result<std::unique_ptr<Kernel>> MakeWideningKernel(const KernelInfo& info, KernelFactory make);

}  // namespace onnxd
