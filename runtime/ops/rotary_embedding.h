// RotaryEmbedding-23 (ai.onnx) and com.microsoft's: pairs of elements of each head are turned by
// the angles of their position. Source: RoFormer, arXiv 2104.09864.
#pragma once

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

// Which inputs are what; the two operators order them differently.
struct RotaryInputs {
  size_t cosines, sines, positions;
};
RotaryInputs RotaryInputsOf(const Node& node);

// Of x[batch, heads, sequence, size] (split_heads) or x[batch, sequence, heads * size].
struct RotarySizes {
  int64_t batch, sequence, heads, size;
  bool split_heads;
  int64_t rotated;   // elements of a head that turn, an even number; the others stay
  bool interleaved;  // pairs are neighbours, not half of `rotated` apart
  // The caches: [rows, width], of which a position names a row, or [batch, sequence, width].
  int64_t rows, width;
  enum class Positions { kRows, kFirst, kEach };
  Positions positions;  // none; the first one of all; one of each step, [batch, sequence]

  int64_t half() const { return rotated / 2; }
  // The first element of a head in x and in the result.
  int64_t HeadAt(int64_t b, int64_t step, int64_t head) const {
    return split_heads ? ((b * heads + head) * sequence + step) * size
                       : ((b * sequence + step) * heads + head) * size;
  }
};

// `positions`: null where they are not given. kInvalidArgument where shapes do not fit.
Result<RotarySizes> RotarySizesOf(const Node& node, const Shape& x, const Shape& cosines,
                                  const Shape& sines, const Shape* positions);

}  // namespace onnxd
