// Division that rounds up.
#pragma once

#include <cstdint>

namespace onnxd {

// Requires a >= 0 and b > 0. No sum of theirs is made, which could overflow.
constexpr int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace onnxd
