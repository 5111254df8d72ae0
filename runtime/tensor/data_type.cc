#include "runtime/tensor/data_type.h"

#include <array>

#include "runtime/base/checked_math.h"

namespace onnxd {
namespace {

struct TypeFacts {
  std::string_view name;
  int bits;
};

constexpr std::array<TypeFacts, kDataTypeCount> kFacts = {{
    {"undefined", 0},      {"float", 32},       {"uint8", 8},          {"int8", 8},
    {"uint16", 16},        {"int16", 16},       {"int32", 32},         {"int64", 64},
    {"string", 0},         {"bool", 8},         {"float16", 16},       {"double", 64},
    {"uint32", 32},        {"uint64", 64},      {"complex64", 64},     {"complex128", 128},
    {"bfloat16", 16},      {"float8e4m3fn", 8}, {"float8e4m3fnuz", 8}, {"float8e5m2", 8},
    {"float8e5m2fnuz", 8}, {"uint4", 4},        {"int4", 4},           {"float4e2m1", 4},
    {"float8e8m0", 8},     {"uint2", 2},        {"int2", 2},
}};

const TypeFacts& Facts(DataType type) { return kFacts[static_cast<size_t>(type)]; }

}  // namespace

bool IsDataType(int64_t number) { return number > 0 && number < kDataTypeCount; }

std::string_view DataTypeName(DataType type) { return Facts(type).name; }

std::optional<DataType> DataTypeFromName(std::string_view name) {
  for (int i = 1; i < kDataTypeCount; ++i) {
    if (kFacts[static_cast<size_t>(i)].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

int DataTypeBits(DataType type) { return Facts(type).bits; }

std::optional<int64_t> TensorBytes(DataType type, int64_t elements) {
  const auto bits = CheckedMultiply(elements, DataTypeBits(type));
  if (!bits) return std::nullopt;
  return *bits / 8 + (*bits % 8 != 0);
}

bool IsFloatingPoint(DataType type) {
  switch (type) {
    case DataType::kFloat:
    case DataType::kDouble:
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kFloat8E4M3FN:
    case DataType::kFloat8E4M3FNUZ:
    case DataType::kFloat8E5M2:
    case DataType::kFloat8E5M2FNUZ:
    case DataType::kFloat4E2M1:
    case DataType::kFloat8E8M0:
      return true;
    default:
      return false;
  }
}

bool IsInteger(DataType type) {
  switch (type) {
    case DataType::kUint8:
    case DataType::kInt8:
    case DataType::kUint16:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
    case DataType::kUint32:
    case DataType::kUint64:
    case DataType::kUint4:
    case DataType::kInt4:
    case DataType::kUint2:
    case DataType::kInt2:
      return true;
    default:
      return false;
  }
}

}  // namespace onnxd
