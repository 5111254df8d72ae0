#include "runtime/providers/cpu/packed_product.h"

#include <algorithm>

#include "runtime/base/checked_math.h"

namespace onnxd {
namespace {

constexpr int64_t kMostRows = 96;            // of a block: they stay in the second-level cache
constexpr int64_t kTileRows = 12;            // blocks end where tiles do
constexpr int64_t kLeastProducts = 1 << 20;  // multiply-adds that are worth a thread

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

ProductCut CutProduct(int64_t m, int64_t panels, int64_t products, int threads, int64_t count) {
  ProductCut cut{};
  const int64_t most = CeilDivide(m, kMostRows);
  cut.rows = std::min(m, CeilDivide(CeilDivide(m, most), kTileRows) * kTileRows);
  cut.blocks = CeilDivide(m, cut.rows);
  const int64_t worth =
      std::clamp<int64_t>(SaturatingMultiply(products, count) / kLeastProducts, 1, threads);
  const int64_t blocks = SaturatingMultiply(cut.blocks, count);
  const bool is_even = blocks % worth == 0 || blocks >= 8 * worth;
  cut.parts = is_even ? 1 : std::min(worth, panels);
  cut.workers = std::min(worth, SaturatingMultiply(blocks, cut.parts));
  return cut;
}

ProductUnit UnitOf(const ProductCut& cut, int64_t unit, int64_t m, int64_t n, int64_t gemm_width) {
  const int64_t block = unit / cut.parts, part = unit % cut.parts;
  const int64_t panels = CeilDivide(n, gemm_width);
  const auto column = [&](int64_t i) { return std::min(n, panels * i / cut.parts * gemm_width); };
  const int64_t row = block * cut.rows;
  return {row, std::min(cut.rows, m - row), column(part), column(part + 1) - column(part)};
}

void RunProductUnit(const math::Simd& simd, const ProductUnit& unit, const ProductOperand& right,
                    const ProductResult& result, math::GemmArguments g) {
  const int64_t k = right.k, n = right.n;
  const int64_t at = unit.first_row * n + unit.first_column;
  g.m = unit.rows;
  g.n = unit.columns;
  g.k = unit.depth == 0 ? k : unit.depth;
  g.packed_b = right.packed + unit.first_column * k +
               unit.first_depth * (right.by_column ? 1 : simd.gemm_width);
  g.panel_rows = k;
  g.c = result.y + at;
  g.ldc = n;
  if (result.bias != nullptr) g.bias = result.bias + unit.first_column;
  g.low = result.activation.low;
  g.high = result.activation.high;
  g.accumulate = result.residual != nullptr;
  if (result.residual != nullptr && result.residual != result.y) {
    for (int64_t row = 0; row < unit.rows; ++row) {
      std::copy_n(result.residual + at + row * n, unit.columns, g.c + row * n);
    }
  }
  right.by_column ? simd.few_columns(g) : simd.gemm(g);
  const Activation& rest = result.activation.rest;
  if (rest.kind == Activation::Kind::kNone) return;
  if (unit.columns == n) return rest.Apply(g.c, unit.rows * n);
  for (int64_t row = 0; row < unit.rows; ++row) rest.Apply(g.c + row * n, unit.columns);
}

PreparedKernel PreparePackedProduct(const PackedProduct& product) {
  PreparedKernel prepared;
  if (product.has_sum) prepared.in_place = {{0, 3}};
  const int64_t m = product.m, k = product.matrix.k, n = product.matrix.n;
  const int64_t width = product.matrix.simd->gemm_width;
  const ProductCut cut = CutProduct(
      m, CeilDivide(n, width), SaturatingMultiply(SaturatingMultiply(m, k), n), product.threads);
  prepared.compute = [=, matrix = product.matrix, has_sum = product.has_sum,
                      activation = BoundsOf(product.activation)](const KernelContext& context) {
    const ProductResult result{context.input<float>(2), has_sum ? context.input<float>(3) : nullptr,
                               activation, context.output<float>(0)};
    const auto run = [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const ProductUnit unit = UnitOf(cut, i, m, n, width);
        math::GemmArguments g{};
        g.a = context.input<float>(0) + unit.first_row * k;
        g.lda = k;
        RunProductUnit(*matrix.simd, unit, {matrix.data(), k, n}, result, g);
      }
    };
    context.pool().ParallelFor(cut.units(), CeilDivide(cut.units(), cut.workers), run);
    return Status::Ok();
  };
  return prepared;
}

}  // namespace onnxd
