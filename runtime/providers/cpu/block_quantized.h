#pragma once

#include <cstdint>
#include <span>

namespace onnxd {

// The code at `index` of a row of unsigned codes of 2, 4 or 8 bits, the first in the low bits.
inline int64_t PackedCodeAt(const uint8_t* row, int64_t index, int64_t bits) {
  const int64_t bit = index * bits;
  return row[bit / 8] >> (bit % 8) & ((1 << bits) - 1);
}

// Rows of packed codes with a scale and a zero point per `block` of columns, as com.microsoft
// MatMulNBits and QMoE store weights: codes [rows, row_bytes], scales [rows, blocks], and zero
// points either packed like the codes, [rows, ceil(blocks * bits / 8)], or as floats [rows,
// blocks]; without any, half of the range of the codes. `groups`, where given, names the block of
// every column (GPTQ's order of columns, g_idx). Refers to its tensors.
struct BlockQuantizedRows {
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;
  const uint8_t* packed_zeros = nullptr;
  const float* zeros = nullptr;
  const int32_t* groups = nullptr;
  int64_t row_bytes = 0, block = 1, blocks = 1, bits = 4;

  // The zero point of a block.
  float ZeroOf(int64_t row, int64_t at) const;
  int64_t ZeroRowBytes() const { return (blocks * bits + 7) / 8; }
  // Writes out.size() columns of the row.
  void Dequantize(int64_t row, std::span<float> out) const;
};

}  // namespace onnxd
