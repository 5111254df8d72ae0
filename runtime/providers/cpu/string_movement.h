// Operators that only move elements, on strings: the kernel moves numbers that stand for the
// strings.
#pragma once

#include "runtime/kernel/kernel.h"

namespace onnxd {

// Whether the node is such an operator and moves strings.
bool MovesStrings(const KernelInfo& info);

// The kernel that `make` gives for int64 in place of strings, wrapped.
Result<std::unique_ptr<Kernel>> MakeStringMovementKernel(const KernelInfo& info,
                                                         KernelFactory make);

}  // namespace onnxd
