// Rows of A of a convolution as a product: the window of a pixel, in pieces that lie in the image
// as they are (math::GemmArguments::pieces). Only where rows of few channels reach into padding are
// they copied.
#pragma once

#include <optional>

#include "runtime/providers/cpu/onednn/conv_operands.h"

namespace onnxd::onednn {

struct ConvPieces : ConvGeometry {
  int64_t m, k;  // rows, and elements of a row
  // A window is `piece_rows` times `piece_columns` pieces of as many elements.
  int64_t piece_rows, piece_columns, piece;
  bool is_plain;   // A is the image
  bool is_padded;  // to the left or right

  int64_t pieces() const { return piece_rows * piece_columns; }
  // What so many rows need beside them: zeros for padding, and copies. Floats, an even number.
  int64_t ZerosAndCopies(int64_t rows) const;
  // The bytes of these and of the addresses of the rows' pieces, a multiple of 64; 0 for plain
  // ones. nullopt where it is more than can be addressed.
  std::optional<int64_t> ScratchBytes(int64_t rows) const;
};

// Whether rows of the window are pieces, rather than its pixels: where nothing pads them, and where
// pixels of few channels would be short and copies of what reaches into padding are cheap.
bool TakesWholeRows(const ConvGeometry& geometry, const Shape& weights);
// The same, but for what depends on padding. weights: [out, in, height, width], none of them 0.
bool AlwaysTakesWholeRows(int64_t dilation, const Shape& weights);

// Requires a dilation of 1 along the width for whole rows.
ConvPieces PiecesOf(ConvGeometry geometry, const Shape& weights, bool whole_rows);

// Rows of the window: [first, end).
struct WindowRows {
  int64_t first, end;
};

// Those that meet the image somewhere in `count` rows of A; the others are zeros for all of them.
WindowRows RowsThatMeet(const ConvPieces& plan, int64_t first, int64_t count);

// Where `count` rows of A from `first` on are: sets a and lda, or pieces and piece. `scratch`: as
// ScratchBytes(count) tells.
math::GemmArguments FindRows(const ConvPieces& plan, WindowRows window, const float* x,
                             int64_t first, int64_t count, std::byte* scratch);

}  // namespace onnxd::onednn
