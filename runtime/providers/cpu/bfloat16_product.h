// Products with a constant matrix in bfloat16, by math::Simd::bfloat16_gemm.
#pragma once

#include "runtime/kernel/kernel.h"

namespace onnxd {

// onnxd::MatMulBiasActivation whose A and B are bfloat16, Z and the result as well or floats.
// Declines others.
Result<std::unique_ptr<Kernel>> MakeBfloat16Product(const KernelInfo& info);

// onnxd::ConvChannelsLast of bfloat16 as a product with its windows: of images so small that their
// weights outweigh them. Whether it is one; weights: [out, in, height, width].
bool TakesBfloat16Windows(const KernelInfo& info, const Shape& weights);
// Requires that it is.
Result<std::unique_ptr<Kernel>> MakeBfloat16Windows(const KernelInfo& info);

// onnxd::MatMulBfloat16x3: floats, each of which counts as the sum of two bfloat16, high and low.
Result<std::unique_ptr<Kernel>> MakeMatMulBfloat16x3(const KernelInfo& info);

}  // namespace onnxd
