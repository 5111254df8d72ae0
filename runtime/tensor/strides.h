// Strides of dense tensors, in elements.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tensor/shape.h"

namespace onnxd {

// Of a row-major shape.
std::vector<int64_t> DenseStrides(const Shape& shape);

// Whether each axis of `shape`, counted from the last one, is 1 or that of `out`.
bool IsBroadcastable(const Shape& shape, const Shape& out);

// That read a tensor of `shape` as if it were broadcast to `out`: 0 where it stretches. Requires
// shape to be broadcastable to out.
std::vector<int64_t> BroadcastStrides(const Shape& shape, const Shape& out);

}  // namespace onnxd
