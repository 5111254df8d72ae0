// From a run-time DataType to a C++ type: DispatchNumber(type, [&]<typename T>() { ... }).
#pragma once

#include <cstdint>

#include "runtime/tensor/data_type.h"

namespace onnxd {

// Arithmetic types that C++ computes itself. Returns false for all others.
template <typename Body>
bool DispatchNumber(DataType type, Body body) {
  switch (type) {
    case DataType::kFloat:
      body.template operator()<float>();
      return true;
    case DataType::kDouble:
      body.template operator()<double>();
      return true;
    case DataType::kInt8:
      body.template operator()<int8_t>();
      return true;
    case DataType::kUint8:
      body.template operator()<uint8_t>();
      return true;
    case DataType::kInt16:
      body.template operator()<int16_t>();
      return true;
    case DataType::kUint16:
      body.template operator()<uint16_t>();
      return true;
    case DataType::kInt32:
      body.template operator()<int32_t>();
      return true;
    case DataType::kUint32:
      body.template operator()<uint32_t>();
      return true;
    case DataType::kInt64:
      body.template operator()<int64_t>();
      return true;
    case DataType::kUint64:
      body.template operator()<uint64_t>();
      return true;
    default:
      return false;
  }
}

}  // namespace onnxd
