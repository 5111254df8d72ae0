// Element types as the Open Inference Protocol spells them: FP32, INT64, BYTES, ...
#pragma once

#include <optional>
#include <string_view>

#include "runtime/tensor/data_type.h"

namespace onnxd {

// Empty for types that the protocol lacks.
std::string_view ProtocolTypeName(DataType type);
std::optional<DataType> DataTypeFromProtocolName(std::string_view name);

}  // namespace onnxd
