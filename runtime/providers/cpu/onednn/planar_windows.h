// The windows of an image [channels, height, width] as the left side of a product by
// math::Simd::gemm, whose rows are the pixels of one row of the result: networks' first
// convolutions read images as they come, a plane for each of their few channels.
#pragma once

#include <cstdint>

#include "runtime/graph/graph.h"
#include "runtime/ops/convolution.h"

namespace onnxd::onednn {

// Whether a convolution with these attributes and weights, [out, channels, height, width], is made
// of such windows: small ones of few channels, with strides and padding that cannot make rows of
// any length.
bool TakesPlanes(const Attributes& attributes, const Shape& weights);

struct PlanarWindows {
  Window window;  // without dilation
  int64_t channels, height, width;

  // Of the product: elements of a window, in the order of weights [out, channels, height, width].
  int64_t k() const { return channels * window.kernel[0] * window.kernel[1]; }
  // For one PlanarReader.
  int64_t ScratchBytes() const;
  int64_t PaddedWidth() const;  // floats that a row of the result reads of a row of the image
};

// One thread.
class PlanarReader {
 public:
  // `scratch` is aligned to pointers.
  PlanarReader(const PlanarWindows& windows, const float* image, void* scratch);

  // Those of one row of the result, for GemmArguments::columns with the stride as lda; valid until
  // the next call. Rows that later ones read, too, are kept.
  const float* const* Row(int64_t row);

 private:
  float* Slot(int64_t channel, int64_t image_row);

  const PlanarWindows& windows_;
  const float* image_;
  const float** columns_;
  float* zeros_;
  float* slots_;          // [channels, window height, padded width]
  int64_t next_row_ = 0;  // of the image; those before it were copied
};

}  // namespace onnxd::onednn
