// Quantization between floats and bytes by loops of runtime/math.
#pragma once

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"

namespace onnxd {

// Decline other types, blocks of scales and rounding in other precisions.
Result<std::unique_ptr<Kernel>> MakeByteQuantize(const KernelInfo& info);
Result<std::unique_ptr<Kernel>> MakeByteDequantize(const KernelInfo& info);

// DynamicQuantizeLinear-11: the range of x[n], widened to hold 0, in 256 steps.
math::Quantization DynamicFormat(const float* x, int64_t n);

}  // namespace onnxd
