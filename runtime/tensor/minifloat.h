// Floats of 8 and 4 bits, as codes; arithmetic happens in float.
// Source: ONNX "Float stored in 8 bits" (E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ), "Float stored in 4
// bits" (E2M1), and OCP Microscaling v1.0 (E8M0).
#pragma once

#include <cstdint>

#include "runtime/tensor/data_type.h"

namespace onnxd {

// How E8M0, which has no mantissa, rounds; the other formats round to nearest, ties to even.
enum class Float8E8M0Rounding { kUp, kDown, kNearest };

struct MinifloatOptions {
  // Beyond the largest finite value: that value, else infinity or, without infinities, NaN.
  bool saturate = true;
  Float8E8M0Rounding rounding = Float8E8M0Rounding::kUp;
};

bool IsMinifloat(DataType type);

// Requires IsMinifloat(type). A 4-bit code is in the low bits.
float MinifloatToFloat(DataType type, uint8_t code);
uint8_t FloatToMinifloat(DataType type, float value, const MinifloatOptions& options = {});

}  // namespace onnxd
