// bfloat16: conversions and products, with every instruction set that this processor has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/math/simd.h"
#include "runtime/tensor/float16.h"
#include "tests/support/every_simd.h"

namespace onnxd::math {
namespace {

class EverySimdOnBfloat16 : public WithSimd {};

std::vector<float> RandomFloats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-2, 2);
  std::vector<float> x(count);
  for (float& value : x) value = distribution(random);
  return x;
}

// Numbers whose products and sums floats hold exactly, so that their order says nothing.
std::vector<float> WholeNumbers(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(random() % 31) - 15.0f;
  return x;
}

struct Halves {
  std::vector<uint16_t> high, low;
};

// Elements of a row of A with the zeros that must follow it.
int64_t PaddedRow(int64_t k) { return PaddedBytes(CurrentSimd(), 2 * k) / 2; }

std::vector<float> Padded(const std::vector<float>& a, int64_t k) {
  const int64_t lda = PaddedRow(k), m = static_cast<int64_t>(a.size()) / k;
  std::vector<float> padded(static_cast<size_t>(m * lda));
  for (int64_t row = 0; row < m; ++row) {
    std::copy_n(a.begin() + row * k, k, padded.begin() + row * lda);
  }
  return padded;
}

float WidenedOf(uint16_t bits) {
  Bfloat16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

Halves Split(const std::vector<float>& x) {
  Halves halves{std::vector<uint16_t>(x.size()), std::vector<uint16_t>(x.size())};
  CurrentSimd().narrow(x.data(), halves.high.data(), halves.low.data(),
                       static_cast<int64_t>(x.size()));
  return halves;
}

std::vector<uint16_t> Pack(const std::vector<uint16_t>& b, bool transposed, int64_t k, int64_t n) {
  const Simd& simd = CurrentSimd();
  std::vector<uint16_t> packed(static_cast<size_t>(PackedBfloat16Size(simd, k, n)), 0x7fc0);
  simd.pack_bfloat16(b.data(), transposed ? k : n, transposed, k, n, packed.data());
  return packed;
}

int64_t PanelStride(int64_t k) { return PackedBfloat16Size(CurrentSimd(), k, 1); }

int64_t Panels(int64_t n) { return (n + CurrentSimd().gemm_width - 1) / CurrentSimd().gemm_width; }

TEST_P(EverySimdOnBfloat16, WidensRowsAndAddsABias) {
  const auto halves = Split(RandomFloats(5 * 50, 10)).high;
  const auto bias = RandomFloats(50, 11);
  for (const int64_t n : {int64_t{3}, int64_t{16}, int64_t{40}}) {
    for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
      std::vector<float> out(5 * 60, -9.0f), line(50);
      CurrentSimd().widen_rows(halves.data(), 50, added, out.data(), 60, 5, n);
      for (int64_t row = 0; row < 5; ++row) {
        CurrentSimd().widen(halves.data() + row * 50, line.data(), 50);
        for (int64_t j = 0; j < 60; ++j) {
          const auto at = static_cast<size_t>(j);
          const float wanted = j >= n ? -9.0f : line[at] + (added != nullptr ? bias[at] : 0.0f);
          EXPECT_EQ(out[static_cast<size_t>(row * 60) + at], wanted);
        }
      }
    }
  }
}

// NaN of either sign in any row is the largest, infinities are what they are.
TEST_P(EverySimdOnBfloat16, FindsTheLargestOfRows) {
  constexpr uint16_t kInfinity = 0x7f80, kNan = 0x7fc0, kNegative = 0x8000;
  auto halves = Split(RandomFloats(300, 9)).high;
  halves[3] = kNan, halves[104] = kNan, halves[205] = kNan;
  halves[6] = halves[107] = halves[208] = kNan | kNegative | 1;
  halves[9] = kInfinity, halves[110] = kInfinity | kNegative;
  halves[11] = halves[111] = halves[211] = kInfinity | kNegative;
  const uint16_t* rows[] = {halves.data(), halves.data() + 100, halves.data() + 200};
  for (const size_t n : {size_t{1}, size_t{16}, size_t{37}, size_t{64}, size_t{100}}) {
    std::vector<uint16_t> out(n + 1, 99);
    CurrentSimd().max_bfloat16_rows(rows, 3, out.data(), static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      if (i >= 3 && i <= 8) {
        EXPECT_EQ(out[i] & kNan, kNan) << i;
      } else {
        float best = -std::numeric_limits<float>::infinity();
        for (const uint16_t* row : rows) best = std::max(best, WidenedOf(row[i]));
        EXPECT_EQ(out[i], Bfloat16(best).bits) << i;
      }
    }
    EXPECT_EQ(out[n], 99);
  }
}

constexpr std::array<int64_t, 3> kSizes[] = {
    {1, 1, 1},    {1, 5, 3},    {2, 64, 33},  {5, 7, 64},     {16, 32, 16},
    {17, 33, 48}, {33, 70, 16}, {40, 96, 80}, {70, 130, 100}, {150, 900, 40}};

TEST_P(EverySimdOnBfloat16, NarrowsToTheNearestWithTiesToEven) {
  std::vector<float> x = RandomFloats(100, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float special : {0.0f, -0.0f, 1.00390625f, 1.01171875f, 3.4e38f, infinity, -infinity,
                              std::numeric_limits<float>::quiet_NaN(), 1e-40f}) {
    x.push_back(special);
  }
  for (const size_t n : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, x.size()}) {
    std::vector<uint16_t> high(n + 1, 99), low(n + 1, 99);
    CurrentSimd().narrow(x.data() + x.size() - n, high.data(), low.data(), static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      const float value = x[x.size() - n + i];
      if (std::isnan(value)) {
        EXPECT_EQ(high[i] & 0x7fc0, 0x7fc0);
        EXPECT_EQ(low[i] & 0x7fff, 0);
        continue;
      }
      const Bfloat16 nearest(value);
      EXPECT_EQ(high[i], nearest.bits) << value;
      const float rest = value - static_cast<float>(nearest);
      EXPECT_EQ(low[i], Bfloat16(std::isfinite(rest) ? rest : 0.0f).bits) << value;
    }
    EXPECT_EQ(high[n], 99);
    EXPECT_EQ(low[n], 99);
    std::vector<uint16_t> alone(n + 1, 99);
    CurrentSimd().narrow(x.data() + x.size() - n, alone.data(), nullptr, static_cast<int64_t>(n));
    EXPECT_EQ(alone, high);
  }
}

TEST_P(EverySimdOnBfloat16, NarrowsRowsBetweenBounds) {
  auto x = RandomFloats(5 * 50, 8);
  x[1] = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t n : {int64_t{3}, CurrentSimd().gemm_width, int64_t{40}}) {
    std::vector<uint16_t> out(5 * 60, 99);
    CurrentSimd().narrow_rows({x.data(), 50, out.data(), 60, 5, n, -0.5f, 1.5f});
    for (int64_t i = 0; i < 5 * 60; ++i) {
      const int64_t row = i / 60, column = i % 60;
      uint16_t wanted = 99;
      if (column < n) {
        const float value = x[static_cast<size_t>(row * 50 + column)];
        wanted = Bfloat16(std::isnan(value) ? value : std::clamp(value, -0.5f, 1.5f)).bits;
      }
      EXPECT_EQ(out[static_cast<size_t>(i)], wanted) << row << ", " << column;
    }
  }
}

TEST_P(EverySimdOnBfloat16, NarrowsRowsAsTheyAreWithoutBounds) {
  const auto x = RandomFloats(2 * 37, 8);
  const auto wanted = Split(x).high;
  std::vector<uint16_t> out(x.size());
  CurrentSimd().narrow_rows({x.data(), 37, out.data(), 37, 2, 37});
  EXPECT_EQ(out, wanted);
}

TEST_P(EverySimdOnBfloat16, Widens) {
  std::vector<uint16_t> x(50);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i * 1311);
  for (const size_t n : {size_t{0}, size_t{7}, size_t{16}, size_t{50}}) {
    std::vector<float> out(n + 1, -1);
    CurrentSimd().widen(x.data(), out.data(), static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(FloatToBfloat16Bits(out[i]), x[i]);
    EXPECT_EQ(out[n], -1);
  }
}

TEST_P(EverySimdOnBfloat16, MultipliesMatrices) {
  for (const auto& [m, k, n] : kSizes) {
    const auto a = WholeNumbers(static_cast<size_t>(m * k), 2);
    const auto b = WholeNumbers(static_cast<size_t>(k * n), 3);
    std::vector<float> turned(b.size()), bias(static_cast<size_t>(n));
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = 0; j < n; ++j) {
        turned[static_cast<size_t>(j * k + p)] = b[static_cast<size_t>(p * n + j)];
      }
    }
    for (size_t j = 0; j < bias.size(); ++j) bias[j] = static_cast<float>(j) - 3.0f;
    const auto packed = Pack(Split(b).high, false, k, n);
    EXPECT_EQ(packed, Pack(Split(turned).high, true, k, n));
    const Halves rows = Split(Padded(a, k));
    const int64_t ldc = n + 3;
    std::vector<float> c(static_cast<size_t>(m * ldc), 1000.0f);
    Bfloat16GemmArguments g{m,
                            n,
                            k,
                            rows.high.data(),
                            nullptr,
                            PaddedRow(k),
                            packed.data(),
                            nullptr,
                            PanelStride(k),
                            c.data(),
                            ldc};
    CurrentSimd().bfloat16_gemm(g, 0, Panels(n));
    g.bias = bias.data();
    g.accumulate = true;
    CurrentSimd().bfloat16_gemm(g, 0, Panels(n));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < ldc; ++j) {
        float expected = 0;
        for (int64_t p = 0; j < n && p < k; ++p) {
          expected += a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(p * n + j)];
        }
        expected = j < n ? 2 * expected + bias[static_cast<size_t>(j)] : 1000.0f;
        ASSERT_EQ(c[static_cast<size_t>(i * ldc + j)], expected)
            << m << " " << k << " " << n << " at " << i << ", " << j;
      }
    }
  }
}

TEST_P(EverySimdOnBfloat16, SplitOperandsAreNearlyFloats) {
  for (const auto& [m, k, n] : kSizes) {
    const auto a = RandomFloats(static_cast<size_t>(m * k), 4);
    const auto b = RandomFloats(static_cast<size_t>(k * n), 5);
    const Halves rows = Split(Padded(a, k)), columns = Split(b);
    const auto high = Pack(columns.high, false, k, n), low = Pack(columns.low, false, k, n);
    std::vector<float> c(static_cast<size_t>(m * n));
    const Bfloat16GemmArguments g{m,
                                  n,
                                  k,
                                  rows.high.data(),
                                  rows.low.data(),
                                  PaddedRow(k),
                                  high.data(),
                                  low.data(),
                                  PanelStride(k),
                                  c.data(),
                                  n};
    CurrentSimd().bfloat16_gemm(g, 0, Panels(n));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double expected = 0, size = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double product = static_cast<double>(a[static_cast<size_t>(i * k + p)]) *
                                 static_cast<double>(b[static_cast<size_t>(p * n + j)]);
          expected += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(static_cast<double>(c[static_cast<size_t>(i * n + j)]), expected, size / 32768)
            << m << " " << k << " " << n;
      }
    }
  }
}

// What lies behind the columns of panels that were not asked for stays as it is.
TEST_P(EverySimdOnBfloat16, ComputesSomePanels) {
  const int64_t n = 3 * CurrentSimd().gemm_width;
  const std::vector<float> ones(static_cast<size_t>(8 * n), 1.0f);
  const auto packed = Pack(Split(ones).high, false, 8, n);
  const Halves rows = Split(Padded(std::vector<float>(16, 1.0f), 8));
  std::vector<float> c(static_cast<size_t>(2 * n), -1.0f);
  const Bfloat16GemmArguments g{2,
                                n,
                                8,
                                rows.high.data(),
                                nullptr,
                                PaddedRow(8),
                                packed.data(),
                                nullptr,
                                PanelStride(8),
                                c.data(),
                                n};
  CurrentSimd().bfloat16_gemm(g, 1, 2);
  for (int64_t i = 0; i < 2 * n; ++i) {
    const int64_t panel = i % n / CurrentSimd().gemm_width;
    EXPECT_EQ(c[static_cast<size_t>(i)], panel == 1 ? 8.0f : -1.0f);
  }
}

// k in two parts, the second of which is added to the first.
TEST_P(EverySimdOnBfloat16, ComputesAPartOfK) {
  constexpr int64_t kM = 40, kK = 192, kPart = 64, kN = 70;
  const auto a = WholeNumbers(kM * kK, 6), b = WholeNumbers(kK * kN, 7);
  const auto packed = Pack(Split(b).high, false, kK, kN);
  const Halves rows = Split(a);
  std::vector<float> whole(kM * kN), parts(kM * kN);
  Bfloat16GemmArguments g{
      kM,           kN, kK, rows.high.data(), nullptr, kK, packed.data(), nullptr, PanelStride(kK),
      whole.data(), kN};
  CurrentSimd().bfloat16_gemm(g, 0, Panels(kN));
  g.k = kPart;
  g.c = parts.data();
  CurrentSimd().bfloat16_gemm(g, 0, Panels(kN));
  g.k = kK - kPart;
  g.a += kPart;
  g.packed_b += kPart * CurrentSimd().gemm_width;
  g.accumulate = true;
  CurrentSimd().bfloat16_gemm(g, 0, Panels(kN));
  EXPECT_EQ(whole, parts);
}

INSTANTIATE_TEST_SUITE_P(Sets, EverySimdOnBfloat16, EverySimdName());

}  // namespace
}  // namespace onnxd::math
