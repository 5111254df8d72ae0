#include "runtime/tensor/strides.h"

namespace onnxd {

std::vector<int64_t> DenseStrides(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

bool IsBroadcastable(const Shape& shape, const Shape& out) {
  const int offset = out.rank() - shape.rank();
  if (offset < 0) return false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1 && shape[axis] != out[axis + offset]) return false;
  }
  return true;
}

std::vector<int64_t> BroadcastStrides(const Shape& shape, const Shape& out) {
  const std::vector<int64_t> dense = DenseStrides(shape);
  std::vector<int64_t> strides(static_cast<size_t>(out.rank()), 0);
  const int offset = out.rank() - shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1) {
      strides[static_cast<size_t>(axis + offset)] = dense[static_cast<size_t>(axis)];
    }
  }
  return strides;
}

}  // namespace onnxd
