// Products of rows with a constant matrix by math::Simd::gemm, cut among threads.
#pragma once

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/packed_matrix.h"

namespace onnxd {

// Units of work of a product: blocks of rows, each in parts of neighbouring panels. They are cut so
// that threads get as many of them.
struct ProductCut {
  int64_t rows;  // of a block, but for the last one
  int64_t blocks;
  int64_t parts;    // of a block
  int64_t workers;  // threads that all of the work is worth

  int64_t units() const { return blocks * parts; }
};

// `products`: the multiply-adds of one product, of which there are `count`, each in as many units.
// All but products at least 1.
ProductCut CutProduct(int64_t m, int64_t panels, int64_t products, int threads, int64_t count = 1);

// Some rows and columns of the product, or of a part of its sums.
struct ProductUnit {
  int64_t first_row, rows, first_column, columns;
  int64_t first_depth = 0, depth = 0;  // of k: what A's rows, which `g` tells, begin with; 0: all
};

ProductUnit UnitOf(const ProductCut& cut, int64_t unit, int64_t m, int64_t n, int64_t gemm_width);

// What becomes of the sums.
struct ProductResult {
  const float* bias;      // [n]; null: none
  const float* residual;  // [m, n], added; null: none; may be y
  ActivationBounds activation;
  float* y;  // [m, n]
};

// The right side, [k, n].
struct ProductOperand {
  const float* packed;  // from first_column on
  int64_t k, n;
  bool by_column = false;                   // for Simd::few_columns; else in panels for its gemm
  const uint16_t* narrow_packed = nullptr;  // for narrow_gemm, in place of `packed`
  math::NarrowFloat narrow = {};
  int64_t first_column = 0;
};

// One unit, of which `g` says where A is, its rows in front: a, lda, pieces and piece.
void RunProductUnit(const math::Simd& simd, const ProductUnit& unit, const ProductOperand& right,
                    const ProductResult& result, math::GemmArguments g);

struct PackedProduct {
  int64_t m;
  PackedMatrix matrix;
  Activation activation;
  bool has_sum;
  int threads;
};

// Of a node with the inputs A [m, k], anything, a bias [n] or none and, with has_sum, Z [m, n].
PreparedKernel PreparePackedProduct(const PackedProduct& product);

}  // namespace onnxd
