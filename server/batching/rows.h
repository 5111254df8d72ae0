// Tensors side by side along their first axis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// Requires dense tensors of one type, and of one shape but for the first dimension. One operand
// comes back as it is. kResourceExhausted when memory is refused.
Result<Tensor> JoinRows(std::span<const Tensor> parts);

// Rows [begin, begin + count) of a tensor with a first axis; they share its memory.
Tensor RowsOf(const Tensor& whole, int64_t begin, int64_t count);

}  // namespace onnxd
