// The attention of flash_attention.h on matrix units (tensor cores): products of 16-bit floats with
// sums of f32, 16 queries a warp. Source: FlashAttention-2, arXiv 2307.08691, whose fragments of
// scores become those of shares without leaving the lanes' registers; and arXiv 2407.08608, which
// multiplies one tile's shares with values while the next tile's scores are made.
#pragma once

#include <string>
#include <vector>

#include "runtime/providers/gpu/flash_attention.h"

namespace onnxd {

// A group's warps; each has 16 queries of a head. `keys` at a time go through local memory.
struct MatrixAttentionTile {
  int64_t warps, keys;
  int64_t queries() const { return warps * 16; }
};

// Whether the units compute it: 16-bit floats, heads of 16 to 128 in steps of 16, rows that vectors
// of 16 bytes load, and at least 16 queries.
bool IsForMatrixUnits(const AttentionText& text, const FlashSizes& sizes);

// Those that are worth a try, the best guess first: the largest whose groups are enough for so many
// multiprocessors, or the smallest.
std::vector<MatrixAttentionTile> MatrixAttentionTiles(const FlashSizes& sizes, int multiprocessors);

// The program of `matrix_attention`, whose arguments are those of `flash_attention`. Requires
// IsForMatrixUnits.
std::string MatrixAttentionSource(const AttentionText& text, const FlashSizes& sizes,
                                  const MatrixAttentionTile& tile);

}  // namespace onnxd
