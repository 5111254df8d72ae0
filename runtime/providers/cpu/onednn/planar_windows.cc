#include "runtime/providers/cpu/onednn/planar_windows.h"

#include <algorithm>

namespace onnxd::onednn {
namespace {

constexpr int64_t kMostChannels = 4, kMostWindow = 49, kMostStep = 64;

bool AreUpTo(const std::vector<int64_t>& values, int64_t least, int64_t most) {
  return std::all_of(values.begin(), values.end(),
                     [&](int64_t value) { return value >= least && value <= most; });
}

}  // namespace

bool TakesPlanes(const Attributes& a, const Shape& w) {
  return w.rank() == 4 && w[0] >= 1 && w[1] >= 1 && w[1] <= kMostChannels && w[2] >= 1 &&
         w[3] >= 1 && w[2] <= kMostWindow && w[3] <= kMostWindow && w[2] * w[3] <= kMostWindow &&
         a.Int("group", 1) == 1 && a.Int("filters_last", 0) == 0 &&
         AreAll(a.Ints("dilations"), 1) && AreUpTo(a.Ints("strides"), 1, kMostStep) &&
         AreUpTo(a.Ints("pads"), 0, kMostStep);
}

int64_t PlanarWindows::PaddedWidth() const {
  const int64_t reads = (window.output[1] - 1) * window.strides[1] + window.kernel[1];
  return (reads + 15) / 16 * 16;
}

int64_t PlanarWindows::ScratchBytes() const {
  const auto pointers = static_cast<int64_t>(sizeof(float*)) * ((k() + 7) / 8 * 8);
  const int64_t rows = channels * window.kernel[0] + 1;
  return pointers + rows * PaddedWidth() * static_cast<int64_t>(sizeof(float));
}

PlanarReader::PlanarReader(const PlanarWindows& windows, const float* image, void* scratch)
    : windows_(windows),
      image_(image),
      columns_(static_cast<const float**>(scratch)),
      zeros_(reinterpret_cast<float*>(columns_ + (windows.k() + 7) / 8 * 8)),
      slots_(zeros_ + windows.PaddedWidth()) {
  std::fill_n(zeros_, windows.PaddedWidth(), 0.0f);
}

float* PlanarReader::Slot(int64_t channel, int64_t image_row) {
  const int64_t rows = windows_.window.kernel[0];
  return slots_ + (channel * rows + image_row % rows) * windows_.PaddedWidth();
}

const float* const* PlanarReader::Row(int64_t row) {
  const Window& window = windows_.window;
  const int64_t top = row * window.strides[0] - window.pads_begin[0];
  const int64_t end = std::min(windows_.height, top + window.kernel[0]);
  const int64_t padded = windows_.PaddedWidth(), left = std::min(window.pads_begin[1], padded);
  const int64_t count = std::min(windows_.width, padded - left);
  next_row_ = std::max({next_row_, top, int64_t{0}});
  for (; next_row_ < end; ++next_row_) {
    for (int64_t channel = 0; channel < windows_.channels; ++channel) {
      const float* from = image_ + (channel * windows_.height + next_row_) * windows_.width;
      float* to = Slot(channel, next_row_);
      std::fill_n(to, left, 0.0f);
      std::copy_n(from, count, to + left);
      std::fill_n(to + left + count, padded - left - count, 0.0f);
    }
  }
  const float** column = columns_;
  for (int64_t channel = 0; channel < windows_.channels; ++channel) {
    for (int64_t y = top; y < top + window.kernel[0]; ++y) {
      const bool inside = y >= 0 && y < windows_.height;
      const float* from = inside ? Slot(channel, y) : zeros_;
      for (int64_t x = 0; x < window.kernel[1]; ++x) *column++ = from + x;
    }
  }
  return columns_;
}

}  // namespace onnxd::onednn
