#include "runtime/providers/cpu/onednn/conv_pieces.h"

#include <algorithm>

#include "runtime/base/checked_math.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd::onednn {
namespace {

constexpr int64_t kLeastChannels = 32;     // that are a piece; fewer: a row of the window is one
constexpr int64_t kMostCopied = 64 << 10;  // floats of a window, where padding has rows copied

// The addresses of the pieces of some rows of A.
class PieceFinder {
 public:
  // `copies` takes what has to be copied; `zeros` is as long as a piece.
  PieceFinder(const ConvPieces& plan, WindowRows rows, const float* x, const float* zeros,
              float* copies)
      : plan_(plan), rows_(rows), x_(x), zeros_(zeros), copies_(copies) {}

  void Find(int64_t first, int64_t count, const float** to) {
    int64_t image = first / plan_.pixels(), row = first % plan_.pixels() / plan_.out_width;
    int64_t column = first % plan_.out_width;
    const int64_t pieces = (rows_.end - rows_.first) * plan_.piece_columns;
    for (int64_t i = 0; i < count; ++i, to += pieces) {
      FindWindow(x_ + image * plan_.height * plan_.width * plan_.in,
                 row * plan_.window.strides[0] - plan_.window.pads_begin[0],
                 column * plan_.window.strides[1] - plan_.window.pads_begin[1], to);
      if (++column < plan_.out_width) continue;
      column = 0;
      if (++row < plan_.out_height) continue;
      row = 0;
      ++image;
    }
  }

 private:
  void FindWindow(const float* image, int64_t top, int64_t left, const float** to) {
    const Window& window = plan_.window;
    const int64_t bottom = top + (window.kernel[0] - 1) * window.dilations[0];
    const int64_t right = left + (window.kernel[1] - 1) * window.dilations[1];
    const int64_t columns = plan_.piece_columns, row_step = window.dilations[0] * plan_.width;
    if (top >= 0 && left >= 0 && bottom < plan_.height && right < plan_.width) {
      const float* row = image + (top * plan_.width + left + rows_.first * row_step) * plan_.in;
      const int64_t step = window.dilations[1] * plan_.in;
      for (int64_t i = rows_.first; i < rows_.end; ++i, row += row_step * plan_.in) {
        for (int64_t j = 0; j < columns; ++j) *to++ = row + j * step;
      }
      return;
    }
    for (int64_t i = rows_.first; i < rows_.end; ++i, to += columns) {
      const int64_t y = top + i * window.dilations[0];
      FindInRow(y >= 0 && y < plan_.height ? image + y * plan_.width * plan_.in : nullptr, left,
                to);
    }
  }

  // `row` is one of the image, null outside of it.
  void FindInRow(const float* row, int64_t left, const float** to) {
    if (plan_.piece_columns == 1) {
      *to = row == nullptr ? zeros_ : WholeRow(row, left);
      return;
    }
    for (int64_t j = 0; j < plan_.piece_columns; ++j) {
      const int64_t column = left + j * plan_.window.dilations[1];
      const bool inside = row != nullptr && column >= 0 && column < plan_.width;
      to[j] = inside ? row + column * plan_.in : zeros_;
    }
  }

  const float* WholeRow(const float* row, int64_t left) {
    const int64_t right = left + plan_.piece / plan_.in;
    if (left >= 0 && right <= plan_.width) return row + left * plan_.in;
    const int64_t begin = std::clamp<int64_t>(left, 0, plan_.width);
    const int64_t end = std::clamp<int64_t>(right, begin, plan_.width);
    float* copy = copies_;
    copies_ += plan_.piece;
    std::fill_n(copy, plan_.piece, 0.0f);
    if (begin < end) {
      std::copy_n(row + begin * plan_.in, (end - begin) * plan_.in,
                  copy + (begin - left) * plan_.in);
    }
    return copy;
  }

  const ConvPieces& plan_;
  const WindowRows rows_;
  const float* x_;
  const float* zeros_;
  float* copies_;
};

}  // namespace

int64_t ConvPieces::ZerosAndCopies(int64_t rows) const {
  const bool copies = piece_columns == 1 && is_padded;
  const int64_t floats = copies ? SaturatingMultiply(rows, k) : 0;
  return SaturatingAdd(floats, piece + 1) / 2 * 2;
}

std::optional<int64_t> ConvPieces::ScratchBytes(int64_t rows) const {
  if (is_plain) return 0;
  const auto bytes =
      CheckedMultiply(SaturatingAdd(ZerosAndCopies(rows) / 2, SaturatingMultiply(rows, pieces())),
                      int64_t{sizeof(float*)});
  if (!bytes || !CheckedMultiply(*bytes + 64, int64_t{2})) return std::nullopt;
  return (*bytes + 63) / 64 * 64;
}

bool AlwaysTakesWholeRows(int64_t dilation, const Shape& weights) {
  return dilation == 1 && weights[1] < kLeastChannels &&
         weights.ElementCount() / weights[0] <= kMostCopied;
}

bool TakesWholeRows(const ConvGeometry& geometry, const Shape& weights) {
  const Window& window = geometry.window;
  const bool is_padded = window.pads_begin[1] > 0 || window.pads_end[1] > 0;
  return (window.dilations[1] == 1 && !is_padded) ||
         AlwaysTakesWholeRows(window.dilations[1], weights);
}

ConvPieces PiecesOf(ConvGeometry geometry, const Shape& weights, bool whole_rows) {
  ConvPieces plan{};
  static_cast<ConvGeometry&>(plan) = std::move(geometry);
  plan.m = plan.images * plan.pixels();
  plan.k = weights[1] * weights[2] * weights[3];
  const Window& window = plan.window;
  plan.is_padded = window.pads_begin[1] > 0 || window.pads_end[1] > 0;
  plan.piece_rows = window.kernel[0];
  plan.piece_columns = whole_rows ? 1 : window.kernel[1];
  plan.piece = whole_rows ? window.kernel[1] * plan.in : plan.in;
  plan.is_plain = plan.k == plan.in && !plan.is_padded && window.pads_begin[0] == 0 &&
                  window.pads_end[0] == 0 && AreAll(window.strides, 1);
  return plan;
}

WindowRows RowsThatMeet(const ConvPieces& plan, int64_t first, int64_t count) {
  const int64_t image = first / plan.pixels();
  if ((first + count - 1) / plan.pixels() != image) return {0, plan.piece_rows};
  const Window& window = plan.window;
  const auto top = [&](int64_t row) {
    return row % plan.pixels() / plan.out_width * window.strides[0] - window.pads_begin[0];
  };
  const int64_t highest = top(first), lowest = top(first + count - 1), step = window.dilations[0];
  WindowRows rows{0, plan.piece_rows};
  while (rows.first + 1 < rows.end && lowest + rows.first * step < 0) ++rows.first;
  while (rows.first + 1 < rows.end && highest + (rows.end - 1) * step >= plan.height) --rows.end;
  return rows;
}

math::GemmArguments FindRows(const ConvPieces& plan, WindowRows window, const float* x,
                             int64_t first, int64_t count, std::byte* scratch) {
  math::GemmArguments g{};
  if (plan.is_plain) {
    g.lda = plan.k;
    g.a = x + first * plan.k;
    return g;
  }
  auto* zeros = reinterpret_cast<float*>(scratch);
  std::fill_n(zeros, plan.piece, 0.0f);
  auto** addresses = reinterpret_cast<const float**>(zeros + plan.ZerosAndCopies(count));
  PieceFinder(plan, window, x, zeros, zeros + plan.piece).Find(first, count, addresses);
  g.pieces = addresses;
  g.piece = plan.piece;
  return g;
}

}  // namespace onnxd::onednn
