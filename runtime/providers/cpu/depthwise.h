// Depthwise convolution of floats, [batch, height, width, channels], by loops of our own: each
// channel has a filter. Windows up to 7 x 7 whose width is odd, of one stride, without dilation,
// are computed by their rows, others number by number of the window.
#pragma once

#include <array>
#include <optional>

#include "runtime/graph/graph.h"
#include "runtime/graph/initializer.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"

namespace onnxd {

// Some channels of an image, whose rows may take turns in fewer slots: row r is in slot r % slots.
struct DepthwiseImage {
  const float* rows;  // [slots, width, pixel]
  int64_t height, width, slots;
  int64_t first_channel, channels;
  int64_t pixel;  // elements from one pixel to the next
  // Of each channel of the result, to which these rows' are added, but for the first few channels;
  // null: not wanted. Needs an activation() that does nothing.
  float* sums = nullptr;
  int64_t first_sum = 0;
};

// Any thread.
class DepthwiseConv {
 public:
  // Whether a convolution with these attributes and weights, [channels, 1, height, width], is one
  // that is computed by rows; that it has a group for each channel is the caller's affair.
  static bool Takes(const Attributes& attributes, const Shape& weights);
  // The same of those that are computed number by number, up to 1,024 of them.
  static bool TakesByNumbers(const Attributes& attributes, const Shape& weights);

  // Packs the weights. Errors as Initializer::InForm. Requires that one of the two takes it.
  static Result<DepthwiseConv> Create(const Attributes& attributes, const Initializer& weights,
                                      const Activation& activation);

  int64_t channels() const { return channels_; }
  const Activation& activation() const { return rest_; }
  std::vector<int64_t> window() const { return {window_height_, window_width_}; }
  int64_t products() const {
    return window_height_ * window_width_;
  }  // of an element of the result

  // Rows [begin, end) of the result of one image, from `out` on, [rows, width, channels()], of
  // which the image's channels are written. bias: [channels()] or null. The caller applies
  // activation() to it.
  void Compute(const DepthwiseImage& image, const Window& window, const float* bias, int64_t begin,
               int64_t end, float* out) const;

  // The same of a whole image, [height, width, channels()].
  void ComputeRows(const float* image, const std::array<int64_t, 2>& size, const Window& window,
                   const float* bias, int64_t begin, int64_t end, float* out) const {
    Compute({image, size[0], size[1], size[0], 0, channels_, channels_}, window, bias, begin, end,
            out);
  }

  // Where one thread may compute the rows of [batch, height, width, channels()] over images of the
  // same shape: so many pixels, at least, the result must begin before them. nullopt: nowhere.
  std::optional<int64_t> PixelsAhead(const Window& window, const Shape& x, const Shape& y) const;

 private:
  // `ends`: of columns whose windows lie alike in the image.
  void ComputeByNumbers(const DepthwiseImage& image, const Window& window, const float* bias,
                        int64_t row, const std::vector<int64_t>& ends, float* out) const;

  bool by_numbers_ = false;
  int64_t channels_ = 0, window_height_ = 0, window_width_ = 0;
  Tensor weights_;  // [window_height, window_width, channels]
  ActivationBounds bounds_;
  bool silu_ = false;
  Activation rest_;  // what loops do not apply themselves
};

}  // namespace onnxd
