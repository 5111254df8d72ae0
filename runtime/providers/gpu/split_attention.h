// The attention of flash_attention.h for few queries, such as a decoder's token: the keys of a head
// are split among groups, since heads alone are too few for a device, and a second kernel joins
// what each has found. Source: Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context
// inference", 2023.
#pragma once

#include <string>
#include <vector>

#include "runtime/providers/gpu/flash_attention.h"

namespace onnxd {

// Queries and keys of the batch's heads in parts: one query of a head and up to `most` keys a
// group.
struct SplitAttentionPlan {
  int64_t most;    // the program's
  int64_t parts;   // of a head's keys; 1: nothing is joined
  int64_t keys;    // of a part, the last of which may have fewer
  int64_t groups;  // of a part: heads and queries
  size_t scratch_bytes;
};

// Whether heads are narrow enough and queries few.
bool IsForSplitAttention(const FlashSizes& sizes);

// Those that are worth a try, the best guess first: the largest parts of which there are enough for
// so many multiprocessors, or the smallest.
std::vector<SplitAttentionPlan> SplitAttentionPlans(const FlashSizes& sizes, int multiprocessors);

std::string SplitAttentionSource(const AttentionText& text, const FlashSizes& sizes,
                                 const SplitAttentionPlan& plan);

// By the plan's program.
Result<FlashAttention> MakeSplitAttention(GpuDevice& device, const std::string& source,
                                          const FlashSizes& sizes, const SplitAttentionPlan& plan);

}  // namespace onnxd
