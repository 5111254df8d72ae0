#include "runtime/providers/cpu/packed_product.h"

#include <algorithm>

#include "runtime/base/ceil_divide.h"
#include "runtime/base/checked_math.h"

namespace onnxd {
namespace {

constexpr int64_t kMostRows = 96;            // of a block: they stay in the second-level cache
constexpr int64_t kTileRows = 12;            // blocks end where tiles do
constexpr int64_t kLeastProducts = 1 << 20;  // multiply-adds that are worth a thread
constexpr int64_t kLeastWidened = 24;        // rows for which a panel is widened apart

ProductOperand OperandOf(const PackedMatrix& matrix) {
  ProductOperand operand{nullptr, matrix.k, matrix.n};
  if (matrix.is_narrow()) {
    operand.narrow_packed = matrix.elements.data<uint16_t>();
    operand.narrow = matrix.narrow;
  } else {
    operand.packed = matrix.data();
  }
  return operand;
}

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
  const int64_t of_b = (unit.first_column - right.first_column) * k +
                       unit.first_depth * (right.by_column ? 1 : simd.gemm_width);
  if (right.narrow_packed == nullptr) g.packed_b = right.packed + of_b;
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
  if (right.narrow_packed != nullptr) {
    simd.narrow_gemm(g, right.narrow_packed + of_b, right.narrow);
  } else {
    right.by_column ? simd.few_columns(g) : simd.gemm(g);
  }
  const Activation& rest = result.activation.rest;
  if (rest.kind == Activation::Kind::kNone) return;
  if (unit.columns == n) return rest.Apply(g.c, unit.rows * n);
  for (int64_t row = 0; row < unit.rows; ++row) rest.Apply(g.c + row * n, unit.columns);
}

namespace {

// Each panel of a narrow matrix is widened once and multiplied with all rows.
PreparedKernel PrepareWidenedProduct(const PackedProduct& product) {
  PreparedKernel prepared;
  if (product.has_sum) prepared.in_place = {{0, 3}};
  const int64_t m = product.m, k = product.matrix.k, n = product.matrix.n;
  const int64_t width = product.matrix.simd->gemm_width, panels = CeilDivide(n, width);
  const int64_t products = SaturatingMultiply(SaturatingMultiply(m, k), n);
  const int64_t workers =
      std::clamp<int64_t>(products / kLeastProducts, 1, std::min<int64_t>(panels, product.threads));
  prepared.scratch_bytes = static_cast<size_t>(workers * k * width) * sizeof(float);
  prepared.compute = [=, matrix = product.matrix, has_sum = product.has_sum,
                      activation = BoundsOf(product.activation)](const KernelContext& context) {
    const ProductResult result{context.input<float>(2), has_sum ? context.input<float>(3) : nullptr,
                               activation, context.output<float>(0)};
    const math::Simd& simd = *matrix.simd;
    const auto* narrow = matrix.elements.data<uint16_t>();
    const auto widen =
        matrix.narrow == math::NarrowFloat::kFloat16 ? simd.widen_float16 : simd.widen;
    context.pool().ParallelFor(workers, 1, [&](int64_t first, int64_t last) {
      for (int64_t worker = first; worker < last; ++worker) {
        float* wide = context.scratch<float>() + worker * k * width;
        const Share share = ShareOf(panels, worker, workers);
        for (int64_t panel = share.begin; panel < share.end; ++panel) {
          widen(narrow + panel * k * width, wide, k * width);
          const int64_t column = panel * width;
          math::GemmArguments g{};
          g.a = context.input<float>(0);
          g.lda = k;
          g.ahead = reinterpret_cast<const float*>(narrow + (panel + 1) * k * width);
          ProductOperand right{wide, k, n};
          right.first_column = column;
          RunProductUnit(simd, {0, m, column, std::min(width, n - column)}, right, result, g);
        }
      }
    });
    return Status::Ok();
  };
  return prepared;
}

}  // namespace

PreparedKernel PreparePackedProduct(const PackedProduct& product) {
  PreparedKernel prepared;
  if (product.has_sum) prepared.in_place = {{0, 3}};
  const int64_t m = product.m, k = product.matrix.k, n = product.matrix.n;
  const int64_t width = product.matrix.simd->gemm_width;
  if (product.matrix.is_narrow() && m >= kLeastWidened) return PrepareWidenedProduct(product);
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
        RunProductUnit(*matrix.simd, unit, OperandOf(matrix), result, g);
      }
    };
    context.pool().ParallelFor(cut.units(), CeilDivide(cut.units(), cut.workers), run);
    return Status::Ok();
  };
  return prepared;
}

}  // namespace onnxd
