// The attention of flash_attention.h by warpgroups (NVIDIA's tensor cores of compute capability
// 9.0): a group is one warpgroup, or two that share its keys and values, each of which has 64 queries.
// Tiles of keys and values are copied while those before are multiplied, and other groups on the
// multiprocessor compute while one waits.
#pragma once

#include <string>

#include "runtime/providers/gpu/flash_attention.h"

namespace onnxd {

inline constexpr int64_t kWarpgroupQueries = 64, kWarpgroupLanes = 128;

// Whether warpgroups compute it: what matrix units do (matrix_attention.h), with heads of 64 or
// 128.
bool IsForWarpgroups(const AttentionText& text, const FlashSizes& sizes);

// LaunchGrid::room_bytes of the kernel, of so many warpgroups a group (1 or 2).
int64_t WarpgroupRoomBytes(const FlashSizes& sizes, int64_t warpgroups);

// The program of `warpgroup_attention`. Requires IsForWarpgroups.
std::string WarpgroupAttentionSource(const AttentionText& text, const FlashSizes& sizes,
                                     int64_t warpgroups);

}  // namespace onnxd
