// Depthwise convolution of floats, [batch, height, width, channels], by loops of our own: each
// channel has a filter. Windows up to 7 x 7 whose width is odd, of one stride, without dilation.
#pragma once

#include "runtime/graph/graph.h"
#include "runtime/graph/initializer.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"

namespace onnxd {

// An image, of which only the rows from `first` on need be there.
struct DepthwiseImage {
  const float* rows;
  int64_t first;
  int64_t height, width;
};

// Any thread.
class DepthwiseConv {
 public:
  // Whether a convolution with these attributes and weights, [channels, 1, height, width], is one;
  // that it has a group for each channel is the caller's affair.
  static bool Takes(const Attributes& attributes, const Shape& weights);

  // Packs the weights. Errors as Initializer::InForm.
  static Result<DepthwiseConv> Create(const Initializer& weights, const Activation& activation);

  int64_t channels() const { return channels_; }
  std::vector<int64_t> window() const { return {window_height_, window_width_}; }

  // Rows [begin, end) of the result of one image, from `out` on. bias: [channels] or null.
  void Compute(const DepthwiseImage& image, const Window& window, const float* bias, int64_t begin,
               int64_t end, float* out) const;

 private:
  int64_t channels_ = 0, window_height_ = 0, window_width_ = 0;
  Tensor weights_;  // [window_height, window_width, channels]
  ActivationBounds bounds_;
};

}  // namespace onnxd
