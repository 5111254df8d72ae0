// What convolutions by products of our own share: [batch, height, width, channels].
#pragma once

#include "runtime/base/checked_math.h"
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

// What an extent of an image that only runs know is taken for where ways are chosen: models that
// take images of any size are given large ones.
inline constexpr int64_t kUsualExtent = 32;

inline int64_t UsualExtent(const Dimension& extent) {
  return extent.known() ? extent.value : kUsualExtent;
}

// Height times width of images [batch, height, width, channels]. Signals, of one row, are long.
inline int64_t UsualPixels(const SymbolicShape& images) {
  const bool is_signal = images[1].known() && images[1].value == 1 && !images[2].known();
  if (is_signal) return kUsualExtent * kUsualExtent;
  return SaturatingMultiply(UsualExtent(images[1]), UsualExtent(images[2]));
}

// Whether the bias and Z of a ConvChannelsLast with so many channels fit. kInvalidArgument if not.
Status CheckBiasAndSum(const PrepareContext& context, int64_t out);

// Weights [out, in, height, width] as B[height * width * in, out], packed for math::Simd::gemm in
// blocks of `depth` rows, one behind the other.
Result<Tensor> PackConvWeights(const math::Simd& simd, const Tensor& plain, int64_t depth);

}  // namespace onnxd::onednn
