// The product of product.h by warpgroups (NVIDIA's tensor cores of compute capability 9.0): of
// 16-bit floats with sums of f32. A warp of each group has the device copy tiles of both operands
// into a ring in local memory, which two warpgroups multiply. Two groups beside each other share
// their columns of b.
//
// Source: the ping-pong and the cooperative schedule of CUTLASS's kernels for that device, whose
// design this follows.
#pragma once

#include <string>

#include "runtime/device/gpu_device.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {

// How the two warpgroups share a group's work.
enum class WarpgroupSchedule {
  kInTurns,   // each has tiles of its own: one finishes its results while the other multiplies
  kTogether,  // both multiply one tile, twice as wide, which copies a third less
};

// A tile of results.
inline constexpr int64_t kWarpgroupRows = 128;
int64_t WarpgroupColumns(WarpgroupSchedule schedule);

// Whether warpgroups compute it: one product of rows of a, and rows of b or of its transpose, whose
// vectors are of 16 bytes, with results of 16 bits.
bool IsForWarpgroups(const ProductText& text, const ProductSizes& sizes);

// Of how many groups and lanes the kernel is launched. Requires a device that has room for it.
LaunchGrid WarpgroupGrid(const GpuProperties& properties, Dialect dialect,
                         const ProductSizes& sizes, WarpgroupSchedule schedule);
bool HasRoomForWarpgroups(const GpuProperties& properties);

// What describes a, and b, to the kernel. Errors as GpuDevice::MakeTileMap.
struct WarpgroupMaps {
  TileMap a, b;
};
Result<WarpgroupMaps> MapsOf(const GpuDevice& device, bool b_rows, const ProductSizes& sizes,
                             const void* a, const void* b);

// The program of `warpgroup_product`, whose arguments are those of `matrix_product`, then both
// maps. Requires IsForWarpgroups.
std::string WarpgroupProductSource(const ProductText& text, bool wide, WarpgroupSchedule schedule);

}  // namespace onnxd
