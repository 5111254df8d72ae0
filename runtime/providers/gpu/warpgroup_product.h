// The product of product.h by warpgroups (NVIDIA's tensor cores of compute capability 9.0): of
// 16-bit floats with sums of f32. Tiles of both operands go through a ring in local memory, copied
// while those before are multiplied; sums go through it to whole rows, whose results are finished
// there.
#pragma once

#include <string>
#include <vector>

#include "runtime/device/gpu_device.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {

// A group's results: `blocks` of 64 rows for each warpgroup, and columns, a multiple of 64 up to
// 256. `at_once` groups are to find room on a multiprocessor; the ring has `stages`, three or more
// where a group is alone, two or more where it is not.
struct WarpgroupTile {
  int64_t warpgroups, blocks, columns, stages, at_once;
  int64_t rows() const { return warpgroups * blocks * 64; }
  int64_t lanes() const { return warpgroups * 128; }
  int64_t room_bytes() const;  // LaunchGrid::room_bytes
};

// Whether warpgroups compute it: rows of a, and rows of b or of its transpose, that vectors of 16
// bytes load.
bool IsForWarpgroups(const ProductText& text, const ProductSizes& sizes);

// Those that the device has room for and that are worth a try, the best guess first.
std::vector<WarpgroupTile> WarpgroupTiles(const GpuProperties& properties);

// The program of `warpgroup_product`, whose arguments are those of `matrix_product`. Requires
// IsForWarpgroups.
std::string WarpgroupProductSource(const ProductText& text, const WarpgroupTile& tile, bool wide);

}  // namespace onnxd
