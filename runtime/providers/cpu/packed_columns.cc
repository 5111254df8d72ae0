#include "runtime/providers/cpu/packed_columns.h"

#include <algorithm>

namespace onnxd {
namespace {

constexpr int64_t kNearFloats = 64 << 10;  // of A, half of a second-level cache at most

}  // namespace

int64_t ColumnCut::PackedFloats(const math::Simd& simd) const {
  return PackedBSize(simd, k, panels) + math::PackedPairsSize(k, n - panels);
}

ColumnCut CutColumns(const math::Simd& simd, int64_t k, int64_t n) {
  const int64_t left = n % simd.gemm_width;
  const bool pairs = simd.pair_gemm != nullptr && k % 2 == 0 && left <= math::kMostPairColumns;
  return {k, n, pairs ? n - left : n};
}

void PackColumns(const math::Simd& simd, const ColumnCut& cut, const float* b, float* packed) {
  if (cut.panels > 0) simd.pack_b(b, cut.k, true, cut.k, cut.panels, packed);
  if (cut.panels == cut.n) return;
  simd.pack_pairs(b + cut.panels * cut.k, cut.k, cut.n - cut.panels,
                  packed + PackedBSize(simd, cut.k, cut.panels));
}

void MultiplyColumns(const math::Simd& simd, const ColumnCut& cut, const float* packed,
                     math::GemmArguments g) {
  const int64_t rows = g.m,
                block = std::max<int64_t>(24, kNearFloats / std::max<int64_t>(1, cut.k));
  g.k = cut.k;
  for (int64_t row = 0; row < rows; row += block, g.a += block * g.lda, g.c += block * g.ldc) {
    g.m = std::min(block, rows - row);
    if (cut.panels > 0) {
      g.n = cut.panels;
      g.packed_b = packed;
      simd.gemm(g);
    }
    if (cut.panels == cut.n) continue;
    math::GemmArguments left = g;
    left.n = cut.n - cut.panels;
    left.packed_b = packed + PackedBSize(simd, cut.k, cut.panels);
    left.c += cut.panels;
    if (g.bias != nullptr) left.bias = g.bias + cut.panels;
    simd.pair_gemm(left);
  }
}

}  // namespace onnxd
