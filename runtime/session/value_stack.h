// Collecting one tensor per iteration, and taking tensors apart again.
#pragma once

#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// Tensors of one type and shape as one, joined along a new `axis` (negative: from the end). With no
// tensors: `type` and `shape`, whose unknown dimensions become 0, with 0 along the axis.
Result<Tensor> StackTensors(const std::vector<Value>& tensors, int64_t axis, bool reversed,
                            DataType type, const SymbolicShape& shape);

// The slice at `index` of `axis`, without that axis; a copy.
Result<Tensor> SliceTensor(const Tensor& tensor, int axis, int64_t index);

}  // namespace onnxd
