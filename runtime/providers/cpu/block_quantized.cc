#include "runtime/providers/cpu/block_quantized.h"

#include <algorithm>

namespace onnxd {

float BlockQuantizedRows::ZeroOf(int64_t row, int64_t at) const {
  if (packed_zeros != nullptr) {
    return static_cast<float>(PackedCodeAt(packed_zeros + row * ZeroRowBytes(), at, bits));
  }
  if (zeros != nullptr) return zeros[row * blocks + at];
  return static_cast<float>(1 << (bits - 1));
}

void BlockQuantizedRows::Dequantize(int64_t row, std::span<float> out) const {
  const uint8_t* from = codes + row * row_bytes;
  const auto columns = static_cast<int64_t>(out.size());
  for (int64_t i = 0; groups != nullptr && i < columns; ++i) {
    const float zero = ZeroOf(row, groups[i]);
    out[static_cast<size_t>(i)] =
        (static_cast<float>(PackedCodeAt(from, i, bits)) - zero) * scales[row * blocks + groups[i]];
  }
  if (groups != nullptr) return;
  for (int64_t b = 0; b * block < columns; ++b) {
    const float zero = ZeroOf(row, b), scale = scales[row * blocks + b];
    const int64_t stop = std::min(columns, (b + 1) * block);
    for (int64_t i = b * block; i < stop; ++i) {
      out[static_cast<size_t>(i)] =
          (static_cast<float>(PackedCodeAt(from, i, bits)) - zero) * scale;
    }
  }
}

}  // namespace onnxd
