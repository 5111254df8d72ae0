#include "runtime/providers/cpu/block_quantized.h"

#include <algorithm>

namespace onnxd {
namespace {

float ZeroOf(const BlockQuantizedRows& from, int64_t row, int64_t block) {
  if (from.packed_zeros != nullptr) {
    const uint8_t* zeros = from.packed_zeros + row * from.ZeroRowBytes();
    return static_cast<float>(PackedCodeAt(zeros, block, from.bits));
  }
  if (from.zeros != nullptr) return from.zeros[row * from.blocks + block];
  return static_cast<float>(1 << (from.bits - 1));
}

}  // namespace

void BlockQuantizedRows::Dequantize(int64_t row, std::span<float> out) const {
  const uint8_t* from = codes + row * row_bytes;
  const auto columns = static_cast<int64_t>(out.size());
  for (int64_t i = 0; groups != nullptr && i < columns; ++i) {
    const float zero = ZeroOf(*this, row, groups[i]);
    out[static_cast<size_t>(i)] =
        (static_cast<float>(PackedCodeAt(from, i, bits)) - zero) * scales[row * blocks + groups[i]];
  }
  if (groups != nullptr) return;
  for (int64_t b = 0; b * block < columns; ++b) {
    const float zero = ZeroOf(*this, row, b), scale = scales[row * blocks + b];
    const int64_t stop = std::min(columns, (b + 1) * block);
    for (int64_t i = b * block; i < stop; ++i) {
      out[static_cast<size_t>(i)] =
          (static_cast<float>(PackedCodeAt(from, i, bits)) - zero) * scale;
    }
  }
}

}  // namespace onnxd
