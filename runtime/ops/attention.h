// The sizes of scaled dot product attention, shared by inference rules and kernels.
#pragma once

#include <array>
#include <optional>

#include "runtime/graph/graph.h"

namespace onnxd {

// Attention-23: heads split the last axis of rank 3 inputs, or stand on an axis of their own in
// [batch, heads, sequence, head size].
struct AttentionSizes {
  bool split_heads = false;  // rank 4
  int64_t batch = 0;
  int64_t query_heads = 0, key_heads = 0;
  int64_t queries = 0, keys = 0;  // of Q, and of K without past
  int64_t past = 0;
  int64_t head = 0, value_head = 0;

  int64_t total() const { return past + keys; }
};

// kInvalidArgument names the node and what does not fit.
Result<AttentionSizes> AttentionSizesOf(const Node& node, const Shape& q, const Shape& k,
                                        const Shape& v, const Shape* past_key,
                                        const Shape* past_value);

// Where Attention's mask has the entry that is added to a score: strides over [batch, heads,
// queries, keys], 0 where it stretches. Keys beyond its own are hidden.
struct AttentionMask {
  std::array<int64_t, 4> strides{};
  int64_t keys = 0;
};

// kInvalidArgument names the node and both shapes.
Result<AttentionMask> AttentionMaskOf(const Node& node, const Shape& mask,
                                      const AttentionSizes& sizes);

}  // namespace onnxd
