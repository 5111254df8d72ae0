#include "runtime/tensor/minifloat.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace onnxd {
namespace {

struct Format {
  int exponent_bits, mantissa_bits, bias;
  bool infinities;     // the largest exponent holds infinity and NaN
  bool unsigned_zero;  // 0x80 is the only NaN
  uint8_t largest;     // code of the largest finite value
  uint8_t nan;         // 0: none
};

Format FormatOf(DataType type) {
  switch (type) {
    case DataType::kFloat8E4M3FN:
      return {4, 3, 7, false, false, 0x7e, 0x7f};
    case DataType::kFloat8E4M3FNUZ:
      return {4, 3, 8, false, true, 0x7f, 0x80};
    case DataType::kFloat8E5M2:
      return {5, 2, 15, true, false, 0x7b, 0x7e};
    case DataType::kFloat8E5M2FNUZ:
      return {5, 2, 16, false, true, 0x7f, 0x80};
    default:
      return {2, 1, 1, false, false, 0x7, 0};
  }
}

float DecodeE8M0(uint8_t code) {
  if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, static_cast<int>(code) - 127);
}

// The exponent of the float itself: its sign is ignored, as in ONNX's reference.
uint8_t EncodeE8M0(float value, const MinifloatOptions& options) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23) & 0xff, fraction = bits & 0x7fffff;
  if (exponent == 0xff) return 0xff;
  bool up = false;
  if (options.rounding == Float8E8M0Rounding::kUp) up = fraction != 0;
  if (options.rounding == Float8E8M0Rounding::kNearest) {
    const bool half = (fraction & 0x400000) != 0;
    up = half && ((fraction & 0x3fffff) != 0 || exponent > 0);
  }
  if (up && exponent == 0xfe && options.saturate) up = false;
  return static_cast<uint8_t>(exponent + (up ? 1 : 0));
}

uint8_t Overflow(const Format& format, uint8_t sign, const MinifloatOptions& options) {
  if (options.saturate || format.nan == 0) return sign | format.largest;
  if (format.infinities) return static_cast<uint8_t>(sign | (format.largest + 1));
  return format.unsigned_zero ? format.nan : static_cast<uint8_t>(sign | format.nan);
}

}  // namespace

bool IsMinifloat(DataType type) {
  return (type >= DataType::kFloat8E4M3FN && type <= DataType::kFloat8E5M2FNUZ) ||
         type == DataType::kFloat4E2M1 || type == DataType::kFloat8E8M0;
}

float MinifloatToFloat(DataType type, uint8_t code) {
  if (type == DataType::kFloat8E8M0) return DecodeE8M0(code);
  const Format format = FormatOf(type);
  const int magnitude_bits = format.exponent_bits + format.mantissa_bits;
  const unsigned magnitude = code & ((1u << magnitude_bits) - 1);
  const bool negative = (code >> magnitude_bits & 1) != 0;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (format.unsigned_zero && magnitude == 0) return negative ? nan : 0.0f;
  if (magnitude > format.largest) {
    const bool infinity = format.infinities && magnitude == format.largest + 1u;
    if (!infinity) return nan;
    return negative ? -std::numeric_limits<float>::infinity()
                    : std::numeric_limits<float>::infinity();
  }
  const unsigned exponent = magnitude >> format.mantissa_bits;
  const unsigned mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const unsigned whole = exponent == 0 ? mantissa : mantissa | 1u << format.mantissa_bits;
  const int scale = static_cast<int>(std::max(exponent, 1u)) - format.bias - format.mantissa_bits;
  const float value = std::ldexp(static_cast<float>(whole), scale);
  return negative ? -value : value;
}

uint8_t FloatToMinifloat(DataType type, float value, const MinifloatOptions& options) {
  if (type == DataType::kFloat8E8M0) return EncodeE8M0(value, options);
  const Format format = FormatOf(type);
  const int magnitude_bits = format.exponent_bits + format.mantissa_bits;
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 1u << magnitude_bits : 0u);
  if (std::isnan(value)) {
    // E2M1 has no NaN: the reference gives negative zero.
    if (format.nan == 0) return static_cast<uint8_t>(1u << magnitude_bits);
    return format.unsigned_zero ? format.nan : static_cast<uint8_t>(sign | format.nan);
  }
  const float magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return Overflow(format, sign, options);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - format.bias);  // of the leading bit, or of subnormals
  const int scale = exponent - format.mantissa_bits;
  auto whole = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, -scale)));
  if (whole >> (format.mantissa_bits + 1) != 0) {  // rounded up into the next power of two
    whole >>= 1;
    ++exponent;
  }
  const bool normal = whole >> format.mantissa_bits != 0;
  const unsigned code =
      normal ? (static_cast<unsigned>(exponent + format.bias) << format.mantissa_bits) +
                   (whole - (1u << format.mantissa_bits))
             : whole;
  if (code > format.largest) return Overflow(format, sign, options);
  if (format.unsigned_zero && code == 0) return 0;
  return static_cast<uint8_t>(sign | code);
}

}  // namespace onnxd
