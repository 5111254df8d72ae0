// Reading an image between its pixels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "runtime/providers/cpu/strided_loop.h"

namespace onnxd {

// What some points see of a plane: weighted sums of its elements. What is asked of one plane after
// another is found once.
template <typename T>
class WeightedPoints {
 public:
  // Of the point that EndPoint ends.
  void AddTap(int64_t at, double weight) {
    at_.push_back(at);
    weights_.push_back(static_cast<T>(weight));
  }
  void EndPoint() { ends_.push_back(at_.size()); }
  void Clear() { at_.clear(), weights_.clear(), ends_.clear(); }

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }

  // out: [size()].
  void Sample(const T* plane, T* out) const {
    size_t tap = 0;
    for (const size_t end : ends_) {
      T sums[4] = {};  // whose additions do not wait for each other
      for (; tap + 4 <= end; tap += 4) {
        for (size_t i = 0; i < 4; ++i) sums[i] += weights_[tap + i] * plane[at_[tap + i]];
      }
      for (; tap < end; ++tap) sums[0] += weights_[tap] * plane[at_[tap]];
      *out++ = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  }

  // Of all channels: pixels [plane, channels], out [size(), channels].
  void SampleRows(const T* pixels, int64_t channels, T* out) const {
    size_t tap = 0;
    for (const size_t end : ends_) {
      std::fill_n(out, channels, T(0));
      for (; tap + 4 <= end; tap += 4) {
        const T *a = pixels + at_[tap] * channels, *b = pixels + at_[tap + 1] * channels;
        const T *c = pixels + at_[tap + 2] * channels, *d = pixels + at_[tap + 3] * channels;
        const T* w = weights_.data() + tap;
        for (int64_t i = 0; i < channels; ++i) {
          out[i] += (w[0] * a[i] + w[1] * b[i]) + (w[2] * c[i] + w[3] * d[i]);
        }
      }
      for (; tap < end; ++tap) {
        const T* a = pixels + at_[tap] * channels;
        for (int64_t i = 0; i < channels; ++i) out[i] += weights_[tap] * a[i];
      }
      out += channels;
    }
  }

 private:
  std::vector<int64_t> at_;
  std::vector<T> weights_;
  std::vector<size_t> ends_;
};

// An image that points are read from; floats of many channels with the channels inside where that
// pays, so that a point reads them as neighbours.
template <typename T>
class SampledImage {
 public:
  // `image`: [channels, plane], read as long as this lives. So many points will be read.
  SampledImage(const T* image, int64_t channels, int64_t plane, int64_t points)
      : image_(image), channels_(channels), plane_(plane) {
    if constexpr (std::is_same_v<T, float>) {
      if (channels < kLeastChannels || points < plane / 4) return;
      pixels_.resize(static_cast<size_t>(channels * plane));
      TransposeMatrix(image, channels, plane, pixels_.data());
    }
  }

  // out[channel * step + point]
  void Sample(const WeightedPoints<T>& points, T* out, int64_t step) {
    if (pixels_.empty()) {
      for (int64_t c = 0; c < channels_; ++c) points.Sample(image_ + c * plane_, out + c * step);
      return;
    }
    if constexpr (std::is_same_v<T, float>) {
      const auto values = static_cast<size_t>(points.size() * channels_);
      rows_.resize(2 * values);
      float* columns = rows_.data() + values;
      points.SampleRows(pixels_.data(), channels_, rows_.data());
      TransposeMatrix(rows_.data(), points.size(), channels_, columns);
      for (int64_t c = 0; c < channels_; ++c) {
        std::copy_n(columns + c * points.size(), points.size(), out + c * step);
      }
    }
  }

 private:
  static constexpr int64_t kLeastChannels = 8;

  const T* image_;
  int64_t channels_, plane_;
  std::vector<T> pixels_;  // [plane, channels], where they are read so
  std::vector<T> rows_;
};

}  // namespace onnxd
