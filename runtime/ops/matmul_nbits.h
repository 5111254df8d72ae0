// The attributes of com.microsoft MatMulNBits, Y[..., N] = A[..., K] * B with B in blocks of few
// bits. Source of the semantics: onnxruntime's ContribOperators document.
#pragma once

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

// B[n, blocks, block * bits / 8] holds codes of 2, 4 or 8 bits, the first in the lowest ones of a
// byte; scales [n, blocks]; zero points packed like the codes, [n, zero_row_bytes], or numbers [n,
// blocks].
struct MatMulNBitsSizes {
  int64_t n, k, block, bits;

  int64_t blocks() const { return (k + block - 1) / block; }
  int64_t row_bytes() const { return blocks() * block * bits / 8; }
  int64_t zero_row_bytes() const { return (blocks() * bits + 7) / 8; }
  // N and K are 1 to 2^30, the block is a power of two from 16 to 2^30, and bits are 2, 4 or 8.
  bool InRange() const;
};

// kInvalidArgument unless they are in range.
Result<MatMulNBitsSizes> MatMulNBitsSizesOf(const Node& node);

}  // namespace onnxd
