// Tensors side by side along their first axis.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// Makes the tensor that rows are joined in; errors as Tensor::Create.
using TensorMaker = std::function<Result<Tensor>(DataType type, const Shape& shape)>;

// Requires tensors. `rows`, where it is more than they have: the last row is there again until
// there are so many. One operand of enough rows comes back as it is. kInternal unless they are of
// one type whose elements fill bytes, and of one shape but for the first dimension;
// kResourceExhausted when memory is refused.
Result<Tensor> JoinRows(std::span<const Tensor> parts, const TensorMaker& make = Tensor::Create,
                        int64_t rows = 0);

// Rows [begin, begin + count) of a tensor with a first axis; they share its memory.
Tensor RowsOf(const Tensor& whole, int64_t begin, int64_t count);

}  // namespace onnxd
