// Conversions between float and the floats of 16 bits, by the instructions that processors have for
// them.
#pragma once

#include "runtime/math/simd.h"
#include "runtime/tensor/convert.h"

namespace onnxd {

// As ConvertElements, which does the other types.
inline void ConvertFloats(DataType from, const void* in, DataType to, void* out, int64_t count) {
  using D = DataType;
  const math::Simd& simd = math::CurrentSimd();
  const auto halves = [](const void* x) { return static_cast<const uint16_t*>(x); };
  const auto* floats = static_cast<const float*>(in);
  if (from == D::kFloat && to == D::kFloat16) {
    simd.narrow_float16(floats, static_cast<uint16_t*>(out), count);
  } else if (from == D::kFloat && to == D::kBfloat16) {
    simd.narrow(floats, static_cast<uint16_t*>(out), nullptr, count);
  } else if (from == D::kFloat16 && to == D::kFloat) {
    simd.widen_float16(halves(in), static_cast<float*>(out), count);
  } else if (from == D::kBfloat16 && to == D::kFloat) {
    simd.widen(halves(in), static_cast<float*>(out), count);
  } else {
    ConvertElements(from, in, to, out, count);
  }
}

}  // namespace onnxd
