// Tensors side by side along their first axis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// Requires tensors. One operand comes back as it is. kInternal unless they are of one type whose
// elements fill bytes, and of one shape but for the first dimension; kResourceExhausted when memory
// is refused.
Result<Tensor> JoinRows(std::span<const Tensor> parts);

// Rows [begin, begin + count) of a tensor with a first axis; they share its memory.
Tensor RowsOf(const Tensor& whole, int64_t begin, int64_t count);

}  // namespace onnxd
