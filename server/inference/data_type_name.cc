#include "server/inference/data_type_name.h"

#include <utility>

namespace onnxd {
namespace {
constexpr std::pair<std::string_view, DataType> kNames[] = {
    {"BOOL", DataType::kBool},     {"UINT8", DataType::kUint8},   {"UINT16", DataType::kUint16},
    {"UINT32", DataType::kUint32}, {"UINT64", DataType::kUint64}, {"INT8", DataType::kInt8},
    {"INT16", DataType::kInt16},   {"INT32", DataType::kInt32},   {"INT64", DataType::kInt64},
    {"FP16", DataType::kFloat16},  {"FP32", DataType::kFloat},    {"FP64", DataType::kDouble},
    {"BF16", DataType::kBfloat16}, {"BYTES", DataType::kString}};
}

std::string_view ProtocolTypeName(DataType type) {
  for (const auto& [name, known] : kNames) {
    if (known == type) return name;
  }
  return "";
}

std::optional<DataType> DataTypeFromProtocolName(std::string_view name) {
  for (const auto& [known, type] : kNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

}  // namespace onnxd
