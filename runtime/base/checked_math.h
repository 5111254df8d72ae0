// Overflow-safe arithmetic for every size that a model file or a client decides.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace onnxd {

inline std::optional<int64_t> CheckedMultiply(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline int64_t SaturatingMultiply(int64_t a, int64_t b) {
  return CheckedMultiply(a, b).value_or((a < 0) == (b < 0) ? std::numeric_limits<int64_t>::max()
                                                           : std::numeric_limits<int64_t>::min());
}

inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  return CheckedAdd(a, b).value_or(a < 0 ? std::numeric_limits<int64_t>::min()
                                         : std::numeric_limits<int64_t>::max());
}

}  // namespace onnxd
