// Reading an image between its pixels.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace onnxd {

// Bilinear value of plane[height, width] at (y, x); pixels outside count as zero.
template <typename T>
double BilinearWithZeros(const T* plane, int64_t height, int64_t width, double y, double x) {
  if (!(y > -1 && y < static_cast<double>(height) && x > -1 && x < static_cast<double>(width))) {
    return 0;
  }
  const auto y0 = static_cast<int64_t>(std::floor(y)), x0 = static_cast<int64_t>(std::floor(x));
  const double wy = y - static_cast<double>(y0), wx = x - static_cast<double>(x0);
  const auto pixel = [&](int64_t row, int64_t column) {
    const bool inside = row >= 0 && row < height && column >= 0 && column < width;
    return inside ? static_cast<double>(plane[row * width + column]) : 0.0;
  };
  return (1 - wy) * ((1 - wx) * pixel(y0, x0) + wx * pixel(y0, x0 + 1)) +
         wy * ((1 - wx) * pixel(y0 + 1, x0) + wx * pixel(y0 + 1, x0 + 1));
}

}  // namespace onnxd
