// Copies of elements from one pattern of strides to another: most of data movement is this.
#pragma once

#include <vector>

#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {

// A part of an input that becomes a part of an output. Strides and offsets are in elements.
struct CopyPiece {
  size_t input = 0, output = 0;
  std::vector<int64_t> dims, in_strides, out_strides;
  int64_t in_offset = 0, out_offset = 0;
};

// Copies the pieces, which do not overlap in the outputs. kUnimplemented where a piece has more
// dimensions than kernels, after those that lie together are joined.
Result<PreparedKernel> PrepareCopies(GpuDevice& device, DataType type,
                                     const std::vector<CopyPiece>& pieces);

}  // namespace onnxd
