#include "runtime/providers/cpu/depthwise.h"

#include <algorithm>
#include <array>

#include "runtime/math/simd.h"

namespace onnxd {
namespace {

constexpr int64_t kMostWindow = 7;
constexpr int64_t kMostRows = 32;  // of the result at a time

// So many rows of the result are computed for a register of channels before the next one: rows of
// the image that several of them read are still in the first-level cache. There some channels of a
// small image stay from row to row, and all of an image that fits.
int64_t RowsAtOnce(const DepthwiseImage& image, const Window& window) {
  constexpr int64_t kNearFloats = 12 << 10, kSmallImage = 1024, kRowsOfLarge = 4;  // pixels
  if (image.slots * image.width * image.pixel <= kNearFloats) return kMostRows;
  if (window.strides[0] + 1 >= window.kernel[0]) return 1;
  return image.slots * image.width <= kSmallImage ? kMostRows : kRowsOfLarge;
}

Result<Tensor> ChannelsLast(const Tensor& plain) {
  const Shape& w = plain.shape();
  const int64_t channels = w[0], window = w[2] * w[3];
  ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                         Tensor::Create(DataType::kFloat, Shape{w[2], w[3], channels}));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < window; ++i) {
      packed.mutable_data<float>()[i * channels + c] = plain.data<float>()[c * window + i];
    }
  }
  return packed;
}

}  // namespace

bool DepthwiseConv::Takes(const Attributes& attributes, const Shape& weights) {
  if (weights.rank() != 4 || weights[0] < 1 || weights[1] != 1) return false;
  const int64_t height = weights[2], width = weights[3];
  if (height < 1 || height > kMostWindow || (width != 3 && width != 5 && width != 7)) return false;
  const std::vector<int64_t> strides = attributes.Ints("strides");
  return (AreAll(strides, 1) || AreAll(strides, 2)) && AreAll(attributes.Ints("dilations"), 1);
}

Result<DepthwiseConv> DepthwiseConv::Create(const Initializer& weights,
                                            const Activation& activation) {
  DepthwiseConv made;
  const Shape& w = weights.shape();
  made.channels_ = w[0], made.window_height_ = w[2], made.window_width_ = w[3];
  made.bounds_ = BoundsOf(activation);
  made.silu_ = made.bounds_.rest.kind == Activation::Kind::kSilu;
  if (!made.silu_) made.rest_ = made.bounds_.rest;
  ONNXD_ASSIGN_OR_RETURN(made.weights_, weights.InForm("depthwise", [](const Tensor& plain) {
    return ChannelsLast(plain);
  }));
  return made;
}

// A pixel of the result falls on one whose last reader is made before the next tile is, or with it.
// Channels whose number registers do not divide are computed twice, which reads them again.
std::optional<int64_t> DepthwiseConv::PixelsAhead(const Window& window, const Shape& x,
                                                  const Shape& y) const {
  const int64_t lanes = math::CurrentSimd().gemm_width / 2;
  if (!AreAll(window.strides, 1) || !(x == y) || channels_ % lanes != 0) return std::nullopt;
  return window.pads_begin[0] * x[2] + window.pads_begin[1] + math::kDepthwiseTile - 1;
}

void DepthwiseConv::Compute(const DepthwiseImage& image, const Window& window, const float* bias,
                            int64_t begin, int64_t end, float* out) const {
  const int64_t channel = image.first_channel, row_size = window.output[1] * channels_;
  const int64_t at_once = RowsAtOnce(image, window);
  std::array<const float*, kMostRows * kMostWindow> rows;
  for (int64_t first = begin; first < end; first += at_once, out += at_once * row_size) {
    const int64_t count = std::min(at_once, end - first);
    for (int64_t i = 0; i < count * window_height_; ++i) {
      const int64_t row = (first + i / window_height_) * window.strides[0] - window.pads_begin[0] +
                          i % window_height_;
      const bool inside = row >= 0 && row < image.height;
      rows[static_cast<size_t>(i)] =
          inside ? image.rows + row % image.slots * image.width * image.pixel : nullptr;
    }
    math::CurrentSimd().depthwise(
        {rows.data(), image.width, image.channels, image.pixel, channels_,
         weights_.data<float>() + channel, window_height_, window_width_, window.strides[0],
         window.pads_begin[1], bias != nullptr ? bias + channel : nullptr, silu_, bounds_.low,
         bounds_.high, out + channel, count, window.output[1], image.sums, image.first_sum});
  }
}

}  // namespace onnxd
