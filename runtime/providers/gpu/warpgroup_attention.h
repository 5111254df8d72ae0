// The attention of flash_attention.h by warpgroups (NVIDIA's tensor cores of compute capability
// 9.0): a group is a warpgroup that has 64 queries. Its tiles of keys and values are copied while
// those before are multiplied, and others on the multiprocessor compute while it waits.
#pragma once

#include <string>

#include "runtime/providers/gpu/flash_attention.h"

namespace onnxd {

inline constexpr int64_t kWarpgroupQueries = 64;

// Whether warpgroups compute it: what matrix units do (matrix_attention.h), with heads of 64 or
// 128.
bool IsForWarpgroups(const AttentionText& text, const FlashSizes& sizes);

// LaunchGrid::room_bytes of the kernel, whose groups have 128 lanes.
int64_t WarpgroupRoomBytes(const FlashSizes& sizes);

// The program of `warpgroup_attention`. Requires IsForWarpgroups.
std::string WarpgroupAttentionSource(const AttentionText& text, const FlashSizes& sizes);

}  // namespace onnxd
