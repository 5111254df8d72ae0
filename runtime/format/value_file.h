// Values as files: the .pb files of ONNX test data sets and NumPy's .npy.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// Bytes of a TensorProto, SequenceProto, MapProto or OptionalProto, as `type` says (a tensor when
// the kind is unknown).
Result<Value> ParseValue(std::string bytes, const ValueType& type);

// The same, for writing: TensorProto with raw data, SequenceProto, MapProto or OptionalProto.
Result<std::string> SerializeValue(const Value& value);

// NumPy's format, versions 1 to 3: little-endian, C order, numbers and bool.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
Result<Tensor> ParseNpy(std::string_view bytes);
Result<std::string> SerializeNpy(const Tensor& tensor);

}  // namespace onnxd
