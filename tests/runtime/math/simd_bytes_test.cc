// The loops over quantized bytes, with every instruction set that this processor has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/math/simd.h"
#include "tests/support/every_simd.h"

namespace onnxd::math {
namespace {

constexpr int64_t kLengths[] = {0, 1, 3, 7, 16, 17, 33, 64, 100};

class EverySimdOnBytes : public WithSimd {};

std::vector<uint8_t> RandomBytes(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

int Integer(uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : byte; }

int Saturated(double steps, const Quantization& to) {
  const double low = to.is_signed ? -128 : 0;
  return static_cast<int>(
      std::clamp(std::nearbyint(steps) + static_cast<double>(to.zero), low, low + 255));
}

TEST_P(EverySimdOnBytes, QuantizesToTheNearestWithTiesToEven) {
  for (const bool is_signed : {false, true}) {
    const Quantization to{is_signed, 0.5f, is_signed ? -3.0f : 7.0f};
    std::vector<float> x = {0.25f,  0.75f, 1.25f, -0.25f,
                            -0.75f, 1e9f,  -1e9f, std::numeric_limits<float>::infinity()};
    for (int i = 0; i < 92; ++i) x.push_back(static_cast<float>(i - 46) * 1.7f);
    for (const int64_t n : kLengths) {
      std::vector<uint8_t> out(static_cast<size_t>(n) + 1, 99);
      CurrentSimd().quantize(x.data(), to, out.data(), n);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        EXPECT_EQ(Integer(out[i], is_signed), Saturated(static_cast<double>(x[i]) / 0.5, to))
            << x[i];
      }
      EXPECT_EQ(out.back(), 99);
    }
  }
}

// Quotients are as division rounds them, whatever the scale; next to ties that decides.
TEST_P(EverySimdOnBytes, QuantizesByTheCorrectlyRoundedQuotient) {
  std::mt19937 random(12);
  std::uniform_real_distribution<float> mantissa(1, 2);
  for (const float unit : {1.0f, 0.013f, 3e-7f, 1e20f, 1e-38f, 2e37f}) {
    for (int round = 0; round < 50; ++round) {
      const Quantization to{false, round == 0 ? unit : unit * mantissa(random), 100.0f};
      std::vector<float> x;
      for (int step = -101; step < 157; ++step) {  // around the middle of two steps
        float middle = (static_cast<float>(step) + 0.5f) * to.scale;
        if (!std::isfinite(middle)) continue;
        for (int away = -2; away <= 2; ++away) {
          x.push_back(away < 0 ? std::nextafter(middle, -1e38f) : middle);
          middle = std::nextafter(middle, 3e38f);
        }
      }
      std::vector<uint8_t> out(x.size());
      CurrentSimd().quantize(x.data(), to, out.data(), static_cast<int64_t>(x.size()));
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(out[i], Saturated(static_cast<double>(x[i] / to.scale), to))
            << x[i] << " by " << to.scale;
      }
    }
  }
}

TEST_P(EverySimdOnBytes, QuantizesRows) {
  std::vector<float> x(5 * 40);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 97) * 3.7f - 120;
  for (const float scale : {1.0f, 0.7f}) {
    const Quantization to{true, scale, 3.0f};
    std::vector<uint8_t> out(5 * 50, 99), line(40);
    CurrentSimd().quantize_rows(x.data(), 40, to, out.data(), 50, 5, 37);
    for (size_t row = 0; row < 5; ++row) {
      CurrentSimd().quantize(x.data() + row * 40, to, line.data(), 37);
      for (size_t j = 0; j < 50; ++j) EXPECT_EQ(out[row * 50 + j], j < 37 ? line[j] : 99);
    }
  }
}

TEST_P(EverySimdOnBytes, QuantizesNaNToTheLeast) {
  const std::vector<float> x(20, std::numeric_limits<float>::quiet_NaN());
  std::vector<uint8_t> out(20);
  CurrentSimd().quantize(x.data(), {true, 1.0f, 0.0f}, out.data(), 20);
  for (const uint8_t byte : out) EXPECT_EQ(Integer(byte, true), -128);
}

TEST_P(EverySimdOnBytes, Dequantizes) {
  const auto x = RandomBytes(100, 1);
  for (const bool is_signed : {false, true}) {
    const Quantization from{is_signed, 0.25f, is_signed ? -100.0f : 131.0f};
    for (const int64_t n : kLengths) {
      std::vector<float> out(static_cast<size_t>(n) + 1, -1);
      CurrentSimd().dequantize(x.data(), from, out.data(), n);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        EXPECT_EQ(out[i], (static_cast<float>(Integer(x[i], is_signed)) - from.zero) * 0.25f);
      }
      EXPECT_EQ(out.back(), -1);
    }
  }
}

TEST_P(EverySimdOnBytes, AddsAndMultiplies) {
  const auto x = RandomBytes(100, 2), y = RandomBytes(100, 3);
  for (const bool is_signed : {false, true}) {
    const float shift = is_signed ? -128.0f : 0.0f;
    for (const int64_t step : {0, 1}) {
      for (const int64_t n : kLengths) {
        const QuantizedOperand a{x.data(), {is_signed, 0.25f, shift + 120}, 1};
        const QuantizedOperand b{y.data(), {is_signed, 0.5f, shift + 30}, step};
        const Quantization to{is_signed, 1.0f, shift + 100};
        std::vector<uint8_t> sum(static_cast<size_t>(n)), product(static_cast<size_t>(n));
        CurrentSimd().quantized_add(a, b, to, sum.data(), n);
        CurrentSimd().quantized_multiply(a, b, to, product.data(), n);
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          const double left = 0.25 * (Integer(x[i], is_signed) - a.format.zero);
          const double right = 0.5 * (Integer(y[step == 0 ? 0 : i], is_signed) - b.format.zero);
          EXPECT_EQ(Integer(sum[i], is_signed), Saturated(left + right, to));
          EXPECT_EQ(Integer(product[i], is_signed), Saturated(left * right, to));
        }
      }
    }
  }
}

TEST_P(EverySimdOnBytes, FindsTheLargestOfRows) {
  const auto bytes = RandomBytes(500, 4);
  for (const bool is_signed : {false, true}) {
    for (const int64_t n : kLengths) {
      for (const int64_t count : {1, 2, 5}) {
        std::vector<const uint8_t*> rows;
        for (int64_t r = 0; r < count; ++r) rows.push_back(bytes.data() + r * 100);
        std::vector<uint8_t> out(static_cast<size_t>(n));
        CurrentSimd().max_byte_rows(rows.data(), count, out.data(), n, is_signed);
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          int best = Integer(rows[0][i], is_signed);
          for (const uint8_t* row : rows) best = std::max(best, Integer(row[i], is_signed));
          EXPECT_EQ(Integer(out[i], is_signed), best);
        }
      }
    }
  }
}

TEST_P(EverySimdOnBytes, FindsTheLargestOfRowsOfFloats) {
  std::vector<float> x(300);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101);
  x[205] = std::numeric_limits<float>::quiet_NaN();
  const float* rows[] = {x.data(), x.data() + 100, x.data() + 200};
  for (const int64_t n : kLengths) {
    std::vector<float> out(static_cast<size_t>(n));
    CurrentSimd().max_rows(rows, 3, out.data(), n);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      if (i == 5) {
        EXPECT_TRUE(std::isnan(out[i]));
      } else {
        EXPECT_EQ(out[i], std::max({rows[0][i], rows[1][i], rows[2][i]}));
      }
    }
  }
}

TEST_P(EverySimdOnBytes, FlipsSignsAndSums) {
  const auto x = RandomBytes(7 * 100, 5);
  std::vector<uint8_t> flipped(x.size());
  CurrentSimd().flip_signs(x.data(), flipped.data(), 700);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(flipped[i], Integer(x[i], true) + 128);
  for (const bool is_signed : {false, true}) {
    std::vector<float> sums(100);
    CurrentSimd().sum_byte_rows(x.data(), 7, 100, sums.data(), is_signed);
    for (size_t c = 0; c < 100; ++c) {
      int sum = 0;
      for (size_t row = 0; row < 7; ++row) sum += Integer(x[row * 100 + c], is_signed);
      EXPECT_EQ(sums[c], static_cast<float>(sum));
    }
  }
}

TEST_P(EverySimdOnBytes, ScalesSums) {
  std::vector<int32_t> sums(100), offsets(100);
  std::vector<float> scales(100), bias(100);
  for (size_t i = 0; i < 100; ++i) {
    sums[i] = static_cast<int32_t>(i * 1000) - 50000;
    offsets[i] = static_cast<int32_t>(i) - 20;
    scales[i] = 0.5f * static_cast<float>(i % 4 + 1);
    bias[i] = static_cast<float>(i % 7);
  }
  for (const int64_t n : kLengths) {
    std::vector<float> plain(100), biased(100);
    std::vector<int32_t> rest(100);
    CurrentSimd().scale_sums(sums.data(), offsets.data(), scales.data(), nullptr, plain.data(), n);
    CurrentSimd().scale_sums(sums.data(), offsets.data(), scales.data(), bias.data(), biased.data(),
                             n);
    CurrentSimd().subtract_integers(sums.data(), offsets.data(), rest.data(), n);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      EXPECT_EQ(rest[i], sums[i] - offsets[i]);
      EXPECT_EQ(plain[i], static_cast<float>(rest[i]) * scales[i]);
      EXPECT_EQ(biased[i], plain[i] + bias[i]);
    }
  }
}

TEST_P(EverySimdOnBytes, MultipliesMatrices) {
  const Simd& simd = CurrentSimd();
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 5, 3},
                                {2, 64, 33},
                                {5, 7, 64},
                                {13, 130, 100},
                                {17, 128, 48},
                                {33, 100, 16},
                                {64, 192, 80},
                                {150, 1200, 40},
                                {40, 2049, 130}}) {
    const auto a = RandomBytes(static_cast<size_t>((m - 1) * k + PaddedBytes(simd, k)), 6);
    const auto b = RandomBytes(static_cast<size_t>(k * n), 7);
    const auto* weights = reinterpret_cast<const int8_t*>(b.data());
    std::vector<int8_t> packed(static_cast<size_t>(PackedBytesSize(simd, k, n)));
    std::vector<int8_t> turned(b.size()), again(packed.size());
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = 0; j < n; ++j) turned[static_cast<size_t>(j * k + p)] = weights[p * n + j];
    }
    simd.pack_bytes(weights, false, k, n, packed.data());
    simd.pack_bytes(turned.data(), true, k, n, again.data());
    EXPECT_EQ(packed, again);
    std::vector<int32_t> offsets(static_cast<size_t>(n)), sums(static_cast<size_t>(m * n));
    std::vector<float> scales(static_cast<size_t>(n)), bias(scales), c(sums.size());
    for (size_t j = 0; j < offsets.size(); ++j) {
      offsets[j] = static_cast<int32_t>(j * 11) - 100;
      scales[j] = 0.25f * static_cast<float>(j % 3 + 1);
      bias[j] = static_cast<float>(j);
    }
    ByteGemmArguments g{m, n, k, a.data(), k, packed.data(), offsets.data()};
    std::vector<int16_t> wide(a.size());
    if (simd.wide_bytes) {
      simd.widen_bytes(a.data(), wide.data(), static_cast<int64_t>(a.size()), false);
      g.a = nullptr;
      g.wide = wide.data();
    }
    g.ldc = n;
    g.sums = sums.data();
    const int64_t panels = (n + simd.gemm_width - 1) / simd.gemm_width;
    simd.byte_gemm(g, 0, panels);
    g.scales = scales.data();
    g.bias = bias.data();
    g.c = c.data();
    simd.byte_gemm(g, 0, panels);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const auto column = static_cast<size_t>(j), at = static_cast<size_t>(i * n + j);
        int32_t sum = -offsets[column];
        for (int64_t p = 0; p < k; ++p)
          sum += a[static_cast<size_t>(i * k + p)] * weights[p * n + j];
        ASSERT_EQ(sums[at], sum) << m << " " << k << " " << n;
        ASSERT_FLOAT_EQ(c[at], static_cast<float>(sum) * scales[column] + bias[column]);
      }
    }
  }
}

TEST_P(EverySimdOnBytes, MultipliesRowsInPieces) {
  const Simd& simd = CurrentSimd();
  if (!simd.wide_bytes) GTEST_SKIP() << "rows are bytes";
  const int64_t piece = 6, pieces = 5, k = piece * pieces;
  for (const int64_t m : {1, 2, 5, 13}) {
    for (const int64_t n : {3, 16, 41}) {
      const auto a = RandomBytes(static_cast<size_t>(m * k), 8);
      const auto b = RandomBytes(static_cast<size_t>(k * n), 9);
      const auto* weights = reinterpret_cast<const int8_t*>(b.data());
      std::vector<int16_t> wide(a.size());
      for (const bool is_signed : {false, true}) {
        simd.widen_bytes(a.data(), wide.data(), m * k, is_signed);
        std::vector<const int16_t*> addresses;  // of rows that lie backwards
        for (int64_t i = 0; i < m * pieces; ++i) {
          addresses.push_back(wide.data() + (m * pieces - 1 - i) * piece);
        }
        std::vector<int8_t> packed(static_cast<size_t>(PackedBytesSize(simd, k, n)));
        simd.pack_bytes(weights, false, k, n, packed.data());
        std::vector<int32_t> offsets(static_cast<size_t>(n), 5), sums(static_cast<size_t>(m * n));
        ByteGemmArguments g{m, n, k, nullptr, 0, packed.data(), offsets.data()};
        g.pieces = addresses.data();
        g.piece = piece;
        g.sums = sums.data();
        g.ldc = n;
        simd.byte_gemm(g, 0, (n + simd.gemm_width - 1) / simd.gemm_width);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            int32_t sum = -5;
            for (int64_t p = 0; p < k; ++p) {
              const int64_t at = (m * pieces - 1 - i * pieces - p / piece) * piece + p % piece;
              const uint8_t byte = a[static_cast<size_t>(at)];
              sum += (is_signed ? static_cast<int8_t>(byte) : byte) * weights[p * n + j];
            }
            ASSERT_EQ(sums[static_cast<size_t>(i * n + j)], sum);
          }
        }
      }
    }
  }
}

// The largest codes times the largest bytes, of a block of 256: nothing saturates on the way.
TEST_P(EverySimdOnBytes, MultipliesBlocksExactly) {
  const Simd& simd = CurrentSimd();
  if (simd.block_byte_product == nullptr) GTEST_SKIP() << "floats are as fast";
  constexpr int64_t kDepth = 512, kBlock = 256;
  for (const int bits : {2, 4, 8}) {
    for (const int64_t m : {1, 2, 5}) {
      const int64_t lanes = simd.gemm_width / 2, n = lanes - 1;
      const int64_t words = kBlock * bits / 32 * lanes;  // of a block
      std::vector<uint32_t> packed(static_cast<size_t>(kDepth / kBlock * (words + lanes)), ~0u);
      for (int64_t b = 0; b < kDepth / kBlock; ++b) {
        std::fill_n(packed.begin() + b * (words + lanes) + words, lanes, 0x3f800000u);  // 1.0f
      }
      const std::vector<int8_t> a(static_cast<size_t>(m * kDepth), -128);
      const std::vector<float> scales(static_cast<size_t>(m * kDepth / kBlock), 1.0f);
      const std::vector<float> sums(scales.size(), -128.0f * kBlock);
      std::vector<float> c(static_cast<size_t>(m * n));
      simd.block_byte_product({{kDepth, n, kBlock, bits, false},
                               packed.data(),
                               m,
                               a.data(),
                               scales.data(),
                               sums.data(),
                               c.data(),
                               n,
                               nullptr},
                              0, 1);
      const int largest = (1 << bits) - 1 - (1 << (bits - 1));  // less the middle
      for (const float x : c) EXPECT_EQ(x, static_cast<float>(-128 * kDepth * largest)) << bits;
    }
  }
}

TEST_P(EverySimdOnBytes, FindsTheSmallest) {
  std::vector<float> x(100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) - 50;
  x[2] = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t n : kLengths) {
    float best = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) best = x[i] < best ? x[i] : best;
    EXPECT_EQ(CurrentSimd().min(x.data(), n), best);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, EverySimdOnBytes, EverySimdName());

}  // namespace
}  // namespace onnxd::math
