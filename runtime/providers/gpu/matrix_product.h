// The product of product.h on matrix units (tensor cores): sums of f32 of f16, of bf16, or of f32
// rounded to TF32, and of i32 of bytes.
#pragma once

#include <string>
#include <vector>

#include "runtime/providers/gpu/product.h"

namespace onnxd {

// What a group of warps computes: `rows` by `columns` results, each warp a part of them.
struct MatrixTile {
  int rows = 128, columns = 128, warp_rows = 64, warp_columns = 32;
  int lanes() const { return rows / warp_rows * (columns / warp_columns) * 32; }
};

// The largest first.
const std::vector<MatrixTile>& MatrixTiles();

// Whether the units compute the product: of bytes, of 16-bit floats, or of f32 where TF32 may stand for it.
bool IsForMatrixUnits(const ProductText& text, bool use_tf32);

// The program of `matrix_product`, whose arguments are those of `tiled_product`. Requires
// IsForMatrixUnits.
std::string MatrixProductSource(const ProductText& text, const ProductSizes& sizes,
                                const MatrixTile& tile, bool wide);

}  // namespace onnxd
