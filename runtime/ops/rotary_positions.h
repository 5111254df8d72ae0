// onnxd::RotaryPositions(x, cosines, sines), the rotary embedding as Transformers' models write it
// (apply_rotary_pos_emb): y = x * cosines + p * sines, where p are the numbers of the last axis'
// second half, negated, and its first; or, `interleaved`, each two neighbours exchanged, the first
// of them negated. The other axes broadcast, as ONNX's Add does. Source: RoFormer, arXiv
// 2104.09864.
#pragma once

#include <array>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

// Rows of y, and where the operands have them.
struct RotaryRows {
  int64_t rows, size;                           // of so many numbers
  std::vector<int64_t> dims;                    // of y, but for the last axis
  std::array<std::vector<int64_t>, 3> strides;  // of the operands, in elements; 0: they repeat
};

// `x_strides`: where x is not dense, else null. kInvalidArgument where the last axes differ or are
// odd; kUnimplemented where x's last axis is not dense.
Result<RotaryRows> RotaryRowsOf(const Node& node, const std::array<const Shape*, 3>& operands,
                                const std::vector<int64_t>* x_strides, const Shape& out);

}  // namespace onnxd
