// Reading an image between its pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

 private:
  std::vector<int64_t> at_;
  std::vector<T> weights_;
  std::vector<size_t> ends_;
};

}  // namespace onnxd
