// A convolution's filters as the rows of a matrix, whose elements lie as those of windows do where
// channels come last.
#pragma once

#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// Filters [out, in, height, width], float or bfloat16, as rows [out, height * width * in].
// kResourceExhausted when memory is refused.
Result<Tensor> FilterRows(const Tensor& filters);

}  // namespace onnxd
