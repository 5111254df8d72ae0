// The right side of a product of bytes, packed once for math::Simd::byte_gemm.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/math/simd.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// Immutable; copies share the elements.
struct PackedByteMatrix {
  int64_t k = 0, n = 0;
  Tensor elements;  // of int8, by pack_bytes
  Tensor sums;      // [n] of uint32: of the columns, modulo 2^32
};

// B[k, n], or B[n, k] when transposed, or one such matrix of the [matrices, k, n] that B is. What
// is unsigned becomes signed, smaller by 128. kResourceExhausted when memory is refused.
Result<PackedByteMatrix> PackByteMatrix(const Initializer& b, bool transposed, int64_t index = 0);

// B's zero points, one or one per column, for its signed bytes: one per column, or none where all
// are 0.
std::vector<int32_t> SignedZeros(std::vector<int32_t> zeros, DataType type, int64_t n);

// sums[row] = the sum of row's k elements less their zero point, modulo 2^32. T: uint8_t, int16_t.
template <typename T>
void SumRows(const T* a, int64_t m, int64_t k, int64_t lda, const math::Quantization& from,
             int32_t* sums) {
  const auto zeros =
      static_cast<uint32_t>(static_cast<int32_t>(from.zero)) * static_cast<uint32_t>(k);
  for (int64_t row = 0; row < m; ++row) {
    uint32_t sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += static_cast<uint32_t>(int32_t{a[row * lda + p]});
    sums[row] = static_cast<int32_t>(sum - zeros);
  }
}

}  // namespace onnxd
