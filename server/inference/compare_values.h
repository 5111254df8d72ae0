// Comparing values as ONNX's own backend tests do.
#pragma once

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// Ok when `got` equals `wanted`: same kind, element type and shape; numbers within
// |got - wanted| <= absolute + relative * |wanted|, NaN equal to NaN; strings and keys exactly.
// kInvalidArgument says where they differ most.
Status CompareValues(const Value& got, const Value& wanted, double relative, double absolute);

}  // namespace onnxd
