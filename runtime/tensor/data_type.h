// Element types, with the numbers of ONNX's TensorProto.DataType (onnx.proto, IR version 13).
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/tensor/float16.h"

namespace onnxd {

enum class DataType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUint2 = 25,
  kInt2 = 26,
};
inline constexpr int kDataTypeCount = 27;

// Whether `number` from a file is one of the types above (kUndefined is not).
bool IsDataType(int64_t number);

// As type constraints spell it: "float", "int64", "bfloat16"; "undefined" for kUndefined.
std::string_view DataTypeName(DataType type);
std::optional<DataType> DataTypeFromName(std::string_view name);

// Bits of one element in memory; 4- and 2-bit types are packed, first element in the low bits.
// 0 for strings, whose elements are std::string objects.
int DataTypeBits(DataType type);

// ceil(elements * bits / 8); nullopt when it overflows int64.
std::optional<int64_t> TensorBytes(DataType type, int64_t elements);

bool IsFloatingPoint(DataType type);
bool IsInteger(DataType type);  // bool is not one
inline bool IsByte(DataType type) { return type == DataType::kUint8 || type == DataType::kInt8; }

// The DataType of a C++ element type.
template <typename T>
inline constexpr DataType kDataTypeOf = DataType::kUndefined;
template <>
inline constexpr DataType kDataTypeOf<float> = DataType::kFloat;
template <>
inline constexpr DataType kDataTypeOf<double> = DataType::kDouble;
template <>
inline constexpr DataType kDataTypeOf<uint8_t> = DataType::kUint8;
template <>
inline constexpr DataType kDataTypeOf<int8_t> = DataType::kInt8;
template <>
inline constexpr DataType kDataTypeOf<uint16_t> = DataType::kUint16;
template <>
inline constexpr DataType kDataTypeOf<int16_t> = DataType::kInt16;
template <>
inline constexpr DataType kDataTypeOf<int32_t> = DataType::kInt32;
template <>
inline constexpr DataType kDataTypeOf<uint32_t> = DataType::kUint32;
template <>
inline constexpr DataType kDataTypeOf<int64_t> = DataType::kInt64;
template <>
inline constexpr DataType kDataTypeOf<uint64_t> = DataType::kUint64;
template <>
inline constexpr DataType kDataTypeOf<bool> = DataType::kBool;
template <>
inline constexpr DataType kDataTypeOf<std::string> = DataType::kString;
template <>
inline constexpr DataType kDataTypeOf<Float16> = DataType::kFloat16;
template <>
inline constexpr DataType kDataTypeOf<Bfloat16> = DataType::kBfloat16;
template <>
inline constexpr DataType kDataTypeOf<std::complex<float>> = DataType::kComplex64;
template <>
inline constexpr DataType kDataTypeOf<std::complex<double>> = DataType::kComplex128;

}  // namespace onnxd
