// One copy of equal constants in the process: instances and versions of a model whose weights are
// the same share them.
#pragma once

#include "runtime/tensor/tensor.h"

namespace onnxd {

// A tensor with the same elements, in memory that an earlier call returned where that is still
// alive; otherwise `tensor` itself, for later calls. Elements are compared, not only hashed.
// Requires that nobody writes to them any more. Small tensors and strings stay as they are. Any
// thread.
Tensor ShareTensor(Tensor tensor);

// The same, for tensors that stay: where there is no earlier one, in KeptMemory.
Tensor ShareKeptTensor(Tensor tensor);

}  // namespace onnxd
