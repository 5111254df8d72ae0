// What onnxd::FusedAttention computes: Y = softmax(scale * Q K^T + mask + window_mask) V over the
// last two axes, operands read and the result written through orders of axes (as Transpose's perm)
// that keep the last one. Other axes broadcast; with nan_to_zero a query that no key is left for
// gives zeros. A window_mask [1, windows, ...] has one axis more than the scores, whose first axis
// counts as two: [batch * windows, ...] as [batch, windows, ...] (Swin Transformers, arXiv
// 2103.14030, section 3.2).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

struct FusedAttentionPlan {
  enum Operand { kQuery, kKey, kValue, kMask, kWindowMask, kOut, kOperands };

  // Added to the scores; strides are 0 where it stretches.
  struct Mask {
    bool given = false;
    int64_t row_stride = 0, column_stride = 0;
  };

  int64_t queries, keys, width, value_width;
  int64_t query_stride, key_stride, value_stride, out_stride;  // of rows
  std::vector<int64_t> batch;
  std::array<std::vector<int64_t>, kOperands> batch_strides;
  std::array<Mask, 2> masks;
  float scale;
  bool nan_to_zero;
};

struct AttentionInput {
  const Shape* shape = nullptr;                   // null: absent
  const std::vector<int64_t>* strides = nullptr;  // null: dense
};

// kInvalidArgument names the operands that do not fit; kUnimplemented: rows, or masks, are not
// dense.
Result<FusedAttentionPlan> PlanFusedAttention(const Node& node,
                                              std::span<const AttentionInput> inputs,
                                              const Shape& output);

}  // namespace onnxd
