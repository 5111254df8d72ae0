#include "runtime/providers/cpu/depthwise.h"

#include <algorithm>
#include <array>

#include "runtime/math/simd.h"

namespace onnxd {
namespace {

constexpr int64_t kMostWindow = 7;
constexpr int64_t kMostRows = 32;  // of the result at a time
constexpr int64_t kMostNumbers = 1024;
constexpr int64_t kNearResults = 1 << 14;  // that are computed for all channels before others

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

// Columns of the result up to which the same columns of the window are inside of the image, from
// one such column of the result to the next; the last is the result's width.
std::vector<int64_t> ColumnsOfOneKind(const Window& window, int64_t width) {
  const int64_t stride = window.strides[1], out = window.output[1];
  std::vector<int64_t> ends = {out};
  for (int64_t j = 0; j < window.kernel[1]; ++j) {
    const int64_t before = window.pads_begin[1] - j * window.dilations[1];
    for (const int64_t edge : {before, before + width}) {
      const int64_t column = edge <= 0 ? 0 : (edge + stride - 1) / stride;
      if (column > 0 && column < out) ends.push_back(column);
    }
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

// Of each number of the window, the first that a pixel of the result is made of; null outside.
void FindPixels(const DepthwiseImage& image, const Window& window, int64_t row, int64_t column,
                const float** pixels) {
  for (int64_t i = 0; i < window.kernel[0]; ++i) {
    const int64_t y = row * window.strides[0] - window.pads_begin[0] + i * window.dilations[0];
    const bool is_row = y >= 0 && y < image.height;
    const float* from = is_row ? image.rows + y % image.slots * image.width * image.pixel : nullptr;
    for (int64_t j = 0; j < window.kernel[1]; ++j) {
      const int64_t x = column * window.strides[1] - window.pads_begin[1] + j * window.dilations[1];
      const bool inside = is_row && x >= 0 && x < image.width;
      *pixels++ = inside ? from + x * image.pixel : nullptr;
    }
  }
}

}  // namespace

bool DepthwiseConv::TakesByNumbers(const Attributes& attributes, const Shape& weights) {
  return weights.rank() == 4 && weights[1] == 1 && !Takes(attributes, weights) &&
         weights[0] >= math::CurrentSimd().gemm_width / 2 && weights[2] >= 1 && weights[3] >= 1 &&
         weights[2] <= kMostNumbers && weights[3] <= kMostNumbers / weights[2];
}

bool DepthwiseConv::Takes(const Attributes& attributes, const Shape& weights) {
  if (weights.rank() != 4 || weights[0] < 1 || weights[1] != 1) return false;
  const int64_t height = weights[2], width = weights[3];
  if (height < 1 || height > kMostWindow || (width != 3 && width != 5 && width != 7)) return false;
  const std::vector<int64_t> strides = attributes.Ints("strides");
  return (AreAll(strides, 1) || AreAll(strides, 2)) && AreAll(attributes.Ints("dilations"), 1);
}

Result<DepthwiseConv> DepthwiseConv::Create(const Attributes& attributes,
                                            const Initializer& weights,
                                            const Activation& activation) {
  DepthwiseConv made;
  made.by_numbers_ = !Takes(attributes, weights.shape());
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
  if (by_numbers_ || !AreAll(window.strides, 1) || !(x == y) || channels_ % lanes != 0)
    return std::nullopt;
  return window.pads_begin[0] * x[2] + window.pads_begin[1] + math::kDepthwiseTile - 1;
}

void DepthwiseConv::Compute(const DepthwiseImage& image, const Window& window, const float* bias,
                            int64_t begin, int64_t end, float* out) const {
  const int64_t channel = image.first_channel, row_size = window.output[1] * channels_;
  if (by_numbers_) {
    const std::vector<int64_t> ends = ColumnsOfOneKind(window, image.width);
    for (int64_t row = begin; row < end; ++row, out += row_size) {
      ComputeByNumbers(image, window, bias, row, ends, out);
    }
    return;
  }
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

// Each number of the window is to the loops a row of one pixel.
void DepthwiseConv::ComputeByNumbers(const DepthwiseImage& image, const Window& window,
                                     const float* bias, int64_t row,
                                     const std::vector<int64_t>& ends, float* out) const {
  const int64_t channel = image.first_channel, numbers = window_height_ * window_width_;
  const int64_t at_once = std::max<int64_t>(math::kDepthwiseTile, kNearResults / channels_);
  std::array<const float*, kMostNumbers> pixels;
  int64_t column = 0;
  for (const int64_t end : ends) {
    while (column < end) {
      const int64_t count = std::min(at_once, end - column);
      FindPixels(image, window, row, column, pixels.data());
      math::CurrentSimd().depthwise(
          {pixels.data(), count, image.channels, window.strides[1] * image.pixel, channels_,
           weights_.data<float>() + channel, numbers, 1, 1, 0,
           bias != nullptr ? bias + channel : nullptr, silu_, bounds_.low, bounds_.high,
           out + column * channels_ + channel, 1, count, image.sums, image.first_sum});
      column += count;
    }
  }
}

}  // namespace onnxd
