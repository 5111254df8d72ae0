// Products of bytes with a constant right side by loops of runtime/math.
#pragma once

#include "runtime/kernel/kernel.h"

namespace onnxd {

// Decline nodes whose B is not a constant matrix with constant zero points, and scales per row of A.
Result<std::unique_ptr<Kernel>> MakeByteMatMulInteger(const KernelInfo& info);
Result<std::unique_ptr<Kernel>> MakeByteQLinearMatMul(const KernelInfo& info);
Result<std::unique_ptr<Kernel>> MakeByteMatMulIntegerToFloat(const KernelInfo& info);
Result<std::unique_ptr<Kernel>> MakeByteDynamicQuantizeMatMul(const KernelInfo& info);
Result<std::unique_ptr<Kernel>> MakeByteQGemm(const KernelInfo& info);

}  // namespace onnxd
