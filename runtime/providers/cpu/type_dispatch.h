// The dispatches that kernels need beyond numbers (runtime/tensor/type_dispatch.h).
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/base/str_cat.h"
#include "runtime/tensor/data_type.h"
#include "runtime/tensor/type_dispatch.h"

namespace onnxd {

inline bool IsNumber(DataType type) {
  return DispatchNumber(type, []<typename T>() {});
}

inline bool IsFloatOrDouble(DataType type) {
  return type == DataType::kFloat || type == DataType::kDouble;
}

template <typename Body>
bool DispatchFloat(DataType type, Body body) {
  if (type == DataType::kFloat) body.template operator()<float>();
  if (type == DataType::kDouble) body.template operator()<double>();
  return IsFloatOrDouble(type);
}

// An unsigned type of the element's width, for moving bytes: 1, 2, 4, 8 or 16 bytes.
struct Bytes16 {
  uint64_t low, high;
};
template <typename Body>
bool DispatchWidth(DataType type, Body body) {
  switch (DataTypeBits(type)) {
    case 8:
      body.template operator()<uint8_t>();
      return true;
    case 16:
      body.template operator()<uint16_t>();
      return true;
    case 32:
      body.template operator()<uint32_t>();
      return true;
    case 64:
      body.template operator()<uint64_t>();
      return true;
    case 128:
      body.template operator()<Bytes16>();
      return true;
    default:
      return false;
  }
}

// Whether elements can be moved as whole bytes (not strings, not packed types).
inline bool IsMovable(DataType type) { return DataTypeBits(type) >= 8; }

inline Status DeclineType(std::string_view what, DataType type) {
  return Unimplemented(StrCat(what, " of type ", DataTypeName(type), " is not supported"));
}

}  // namespace onnxd
