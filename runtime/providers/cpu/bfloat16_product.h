// Products with a constant matrix in bfloat16, by math::Simd::bfloat16_gemm.
#pragma once

#include "runtime/kernel/kernel.h"

namespace onnxd {

// onnxd::MatMulBiasActivation whose A and B are bfloat16, Z and the result as well or floats.
// Declines others.
Result<std::unique_ptr<Kernel>> MakeBfloat16Product(const KernelInfo& info);

// onnxd::MatMulBfloat16x3: floats, each of which counts as the sum of two bfloat16, high and low.
Result<std::unique_ptr<Kernel>> MakeMatMulBfloat16x3(const KernelInfo& info);

}  // namespace onnxd
