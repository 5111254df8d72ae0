// SizeClass: a size to which those a little smaller are rounded up, so that what is made for a size
// serves many.
#pragma once

#include <bit>
#include <cstdint>

namespace onnxd {

// The least of 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ... (four between powers of two) that is
// not below `size`: less than a quarter above it. Sizes below 1 stay as they are, as do those of
// 2^62 and more.
constexpr int64_t SizeClass(int64_t size) {
  if (size <= 8 || size >= int64_t{1} << 62) return size;
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size - 1)) / 4);
  return (size + step - 1) / step * step;
}

}  // namespace onnxd
