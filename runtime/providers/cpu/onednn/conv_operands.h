// What convolutions by products of our own share: [batch, height, width, channels].
#pragma once

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/tensor/tensor.h"

namespace onnxd::onednn {

// Whether X, the bias and Z of a ConvChannelsLast fit weights [out, in, height, width].
// kInvalidArgument if not.
Status CheckConvOperands(const PrepareContext& context, const Shape& weights);

// Weights [out, in, height, width] as B[height * width * in, out], packed for math::Simd::gemm in
// blocks of `depth` rows, one behind the other.
Result<Tensor> PackConvWeights(const math::Simd& simd, const Tensor& plain, int64_t depth);

}  // namespace onnxd::onednn
