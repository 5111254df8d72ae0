// The first of many floats in order, by the digits of keys: a radix sort from the lowest digit up
// (Knuth, The Art of Computer Programming, volume 3, 5.2.5), of those that may be among them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace onnxd {

// Of numbers that come before another it is less, with NaN the largest of all and zeros alike.
inline int32_t OrderOf(float x, bool largest) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const auto bits = std::bit_cast<int32_t>(x + 0.0f);  // no negative zero
  const int32_t ascending = std::isnan(x) ? kMost : bits < 0 ? bits ^ kMost : bits;
  return largest ? ~ascending : ascending;
}

constexpr int64_t kMostOrderedByDigits = std::numeric_limits<int32_t>::max();

// Which of x[extent], `stride` apart, come first: `count` indices to `order`, equal numbers in the
// order of their indices. Needs scratch[2 * extent]; requires count <= extent <=
// kMostOrderedByDigits.
void OrderByDigits(const float* x, int64_t extent, int64_t stride, bool largest, int64_t count,
                   uint64_t* scratch, int64_t* order);

}  // namespace onnxd
