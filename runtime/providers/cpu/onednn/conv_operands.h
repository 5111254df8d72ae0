// What convolutions by products of our own share: [batch, height, width, channels].
#pragma once

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/tensor/tensor.h"

namespace onnxd::onednn {

// A convolution without groups.
struct ConvGeometry {
  Window window;
  int64_t images;
  int64_t height, width, in;           // of the input
  int64_t out_height, out_width, out;  // of the result

  int64_t pixels() const { return out_height * out_width; }  // of the result of an image
};

// Of a node that makes y of x by weights [out, in, height, width]. kInvalidArgument where channels
// do not fit together or padding is below 0.
Result<ConvGeometry> GeometryOf(const Node& node, const Shape& x, const Shape& y,
                                const Shape& weights);

// Whether each pixel of the result is of one of the image: 1 x 1, not in groups, as attributes say.
bool IsPointwise(const Attributes& attributes, const Shape& weights);

// Whether the bias and Z of a ConvChannelsLast with so many channels fit. kInvalidArgument if not.
Status CheckBiasAndSum(const PrepareContext& context, int64_t out);

// Weights [out, in, height, width] as B[height * width * in, out], packed for math::Simd::gemm in
// blocks of `depth` rows, one behind the other.
Result<Tensor> PackConvWeights(const math::Simd& simd, const Tensor& plain, int64_t depth);

}  // namespace onnxd::onednn
