#pragma once

#include "runtime/tensor/tensor.h"

namespace onnxd {

// Copies `count` elements, strings too. Both tensors have the same type, of whole bytes: narrower
// elements cannot be addressed.
void CopyElements(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count);

}  // namespace onnxd
