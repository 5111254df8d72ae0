// The product of product.h by warpgroups (NVIDIA's tensor cores of compute capability 9.0): of
// 16-bit floats with sums of f32. A warp of each group has the device copy tiles of both operands
// into a ring in local memory; two warpgroups multiply in turns, so that one finishes its results
// while the other computes. Two groups beside each other share their columns of b.
//
// Source: the ping-pong schedule of CUTLASS's kernels for that device, whose design this follows.
#pragma once

#include <array>
#include <string>

#include "runtime/device/gpu_device.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {

// A group's results at a time are so many rows, by one of these numbers of columns: the more, the
// less is copied, and the fewer groups have work.
inline constexpr int64_t kWarpgroupRows = 128;
inline constexpr std::array<int64_t, 2> kWarpgroupColumns = {192, 128};

// Whether warpgroups compute it: one product of rows of a, and rows of b or of its transpose, whose
// vectors are of 16 bytes, with results of 16 bits.
bool IsForWarpgroups(const ProductText& text, const ProductSizes& sizes);

// Of how many groups and lanes the kernel is launched. Requires a device that has room for it.
LaunchGrid WarpgroupGrid(const GpuProperties& properties, Dialect dialect,
                         const ProductSizes& sizes, int64_t columns);
bool HasRoomForWarpgroups(const GpuProperties& properties);

// What describes a, and b, to the kernel. Errors as GpuDevice::MakeTileMap.
struct WarpgroupMaps {
  TileMap a, b;
};
Result<WarpgroupMaps> MapsOf(const GpuDevice& device, bool b_rows, const ProductSizes& sizes,
                             int64_t columns, const void* a, const void* b);

// The program of `warpgroup_product`, whose arguments are those of `matrix_product`, then both
// maps. Where the plan names its addends, the sums and the row are rounded before the matrix is
// added, as by nodes of their own. Requires IsForWarpgroups.
std::string WarpgroupProductSource(const ProductPlan& plan, bool wide, int64_t columns);

// Adds its arguments of the text, in place of ProductPlan::fill.
ProductFill WarpgroupFill(const ProductPlan& plan);

}  // namespace onnxd
