// What kernels over quantized bytes share.
#pragma once

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"

namespace onnxd {

inline float ByteAt(const uint8_t* byte, bool is_signed) {
  return static_cast<float>(is_signed ? static_cast<int8_t>(*byte) : *byte);
}

// The scale at input `scale` and the zero point behind it (null: 0) of one call.
inline math::Quantization FormatAt(const KernelContext& k, size_t scale, bool is_signed) {
  const uint8_t* zero = k.input<uint8_t>(scale + 1);
  return {is_signed, k.input<float>(scale)[0], zero == nullptr ? 0.0f : ByteAt(zero, is_signed)};
}

}  // namespace onnxd
