// float16: conversions with every instruction set that this processor has, against float16.h.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/math/simd.h"
#include "runtime/tensor/float16.h"
#include "tests/support/every_simd.h"

namespace onnxd::math {
namespace {

class EverySimdOnFloat16 : public WithSimd {};

TEST_P(EverySimdOnFloat16, WidensEveryNumber) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> out(halves.size());
  CurrentSimd().widen_float16(halves.data(), out.data(), static_cast<int64_t>(halves.size()));
  for (size_t i = 0; i < halves.size(); ++i) {
    const float wanted = HalfBitsToFloat(halves[i]);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(out[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(wanted)) << i;
    }
  }
}

// Each float16, what lies beside it, and the middle between it and the next one, where ties go to
// even.
std::vector<float> Candidates() {
  std::vector<float> x = {1e-40f,
                          65519.99f,
                          65520.0f,
                          1e30f,
                          -1e30f,
                          std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()};
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const float half = HalfBitsToFloat(static_cast<uint16_t>(i));
    const float next = HalfBitsToFloat(static_cast<uint16_t>(i + 1));
    const float middle = half + (next - half) / 2;
    for (const float value :
         {half, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e6f)}) {
      x.push_back(value);
      x.push_back(-value);
    }
  }
  return x;
}

TEST_P(EverySimdOnFloat16, NarrowsToTheNearestWithTiesToEven) {
  const std::vector<float> x = Candidates();
  std::vector<uint16_t> out(x.size());
  CurrentSimd().narrow_float16(x.data(), out.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      EXPECT_EQ(out[i] & 0x7e00, 0x7e00);
    } else {
      EXPECT_EQ(out[i], FloatToHalfBits(x[i])) << x[i];
    }
  }
}

TEST_P(EverySimdOnFloat16, LeavesWhatFollowsAlone) {
  const std::vector<float> x(40, 1.5f);
  for (size_t n = 0; n <= x.size(); ++n) {
    std::vector<uint16_t> halves(n + 1, 99);
    CurrentSimd().narrow_float16(x.data(), halves.data(), static_cast<int64_t>(n));
    std::vector<float> back(n + 1, 99);
    CurrentSimd().widen_float16(halves.data(), back.data(), static_cast<int64_t>(n));
    EXPECT_EQ(std::vector<float>(back.begin(), back.end() - 1), std::vector<float>(n, 1.5f));
    EXPECT_EQ(halves[n], 99);
    EXPECT_EQ(back[n], 99);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, EverySimdOnFloat16, EverySimdName());

}  // namespace
}  // namespace onnxd::math
