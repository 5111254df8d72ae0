// The right side of a product to few columns: whole panels for math::Simd::gemm, and what is left
// of the last one, where it is half empty, for pair_gemm.
#pragma once

#include <cstdint>

#include "runtime/math/simd.h"

namespace onnxd {

struct ColumnCut {
  int64_t k, n;
  int64_t panels;  // columns of them; the others are in pairs

  int64_t PackedFloats(const math::Simd& simd) const;
};

ColumnCut CutColumns(const math::Simd& simd, int64_t k, int64_t n);

// b: [n, k]; packed: PackedFloats.
void PackColumns(const math::Simd& simd, const ColumnCut& cut, const float* b, float* packed);

// `g` says all but n, k and packed_b; its rows are taken in blocks whose part of A stays near.
void MultiplyColumns(const math::Simd& simd, const ColumnCut& cut, const float* packed,
                     math::GemmArguments g);

}  // namespace onnxd
