// Tensors as the protocol's raw bytes: little-endian, row-major, BOOL one byte, BYTES as a uint32
// length and that many bytes per element.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// Numbers that `owner` keeps at kTensorAlignment are used where they are; else a copy. The bytes
// change no more. kInvalidArgument names `input` when the size does not fit the shape, a
// BOOL byte is neither 0 nor 1, or a BYTES element runs beyond the end.
Result<Tensor> TensorFromBytes(std::string_view bytes, const std::shared_ptr<void>& owner,
                               DataType type, const Shape& shape, const std::string& input);

// How many bytes AppendTensorBytes appends.
size_t SizeOfTensorBytes(const Tensor& tensor);
void AppendTensorBytes(std::string& out, const Tensor& tensor);

}  // namespace onnxd
