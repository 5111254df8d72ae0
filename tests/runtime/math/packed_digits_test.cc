// Products of floats in digits with a matrix that was packed before, against sums in
// double: where there are tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "runtime/math/simd.h"

namespace onnxd::math {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomFloats(int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& each : x) each = normal(generator);
  return x;
}

class PackedDigits : public testing::Test {
 protected:
  void SetUp() override {
    if (CurrentSimd().packed_digits_gemm == nullptr) GTEST_SKIP() << "this processor has no tiles";
  }
};

struct Product {
  int64_t m, k, n;
  int64_t piece = 0;                   // 0: rows are not in pieces
  std::vector<float> a, b, bias, sum;  // [m, k], [n, k], [n], [m, n]
  float low = -kInfinity, high = kInfinity;

  Product(int64_t rows, int64_t depth, int64_t columns)
      : m(rows),
        k(depth),
        n(columns),
        a(RandomFloats(m * k, 1)),
        b(RandomFloats(n * k, 2)),
        bias(RandomFloats(n, 3)),
        sum(RandomFloats(m * n, 4)) {}

  float& A(int64_t row, int64_t i) { return a[static_cast<size_t>(row * k + i)]; }
  float& B(int64_t column, int64_t i) { return b[static_cast<size_t>(column * k + i)]; }

  double Exact(int64_t row, int64_t column) {
    double exact = static_cast<double>(bias[static_cast<size_t>(column)]) +
                   static_cast<double>(sum[static_cast<size_t>(row * n + column)]);
    for (int64_t i = 0; i < k; ++i) {
      exact += static_cast<double>(A(row, i)) * static_cast<double>(B(column, i));
    }
    return exact;
  }
};

// In calls of `panels` panels each; in place: C holds the sum before. Scratch memory is that of
// `scratch_rows`, or of the rows where these are more, and nothing behind it is written.
std::vector<float> Multiply(const Product& p, int64_t panels, bool in_place,
                            int64_t scratch_rows = 0) {
  const Simd& simd = CurrentSimd();
  const int64_t piece = p.piece == 0 ? p.k : p.piece, pieces = p.k / piece;
  std::vector<std::byte> packed(static_cast<size_t>(simd.packed_digits_size(p.k, p.n)) + 64);
  auto* aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(packed.data()) + 63) / 64 * 64);
  PackedDigitsArguments g{};
  g.m = p.m, g.n = p.n, g.k = p.k, g.piece = piece;
  simd.pack_digits(p.b.data(), p.k, p.n, aligned);
  g.packed = aligned;
  std::vector<const float*> found;
  for (int64_t i = 0; i < p.m * pieces; ++i) found.push_back(p.a.data() + i * piece);
  if (p.piece == 0) {
    g.a = p.a.data(), g.lda = p.k;
  } else {
    g.pieces = found.data();
  }
  std::vector<float> c = in_place ? p.sum : std::vector<float>(p.sum.size(), kNan);
  g.c = c.data(), g.ldc = p.n, g.bias = p.bias.data();
  g.sum = in_place ? c.data() : p.sum.data();
  g.low = p.low, g.high = p.high;
  g.shares_results = panels == 1;
  constexpr size_t kBehind = 1 << 20;
  constexpr std::byte kMark{0x5a};
  const auto scratch_bytes =
      static_cast<size_t>(simd.packed_digits_scratch(std::max(p.m, scratch_rows), p.k, p.n));
  std::vector<std::byte> scratch(scratch_bytes + kBehind + 64, kMark);
  g.scratch =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const int64_t all = (p.n + simd.gemm_width - 1) / simd.gemm_width;
  for (int64_t first = 0; first < all; first += panels) {
    simd.packed_digits_gemm(g, first, std::min(all, first + panels));
  }
  const std::byte* end = g.scratch + scratch_bytes;
  EXPECT_TRUE(std::all_of(end, end + kBehind, [&](std::byte byte) { return byte == kMark; }))
      << p.m << " rows, scratch memory of " << std::max(p.m, scratch_rows);
  return c;
}

// No further from exact sums than products of floats may be.
void ExpectExact(Product& p, const std::vector<float>& c) {
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t column = 0; column < p.n; ++column) {
      const double exact = std::clamp<double>(p.Exact(row, column), p.low, p.high);
      ASSERT_NEAR(c[static_cast<size_t>(row * p.n + column)], exact,
                  1.5e-6 * std::sqrt(static_cast<double>(p.k)) + 2e-7 * std::abs(exact))
          << p.m << " " << p.k << " " << p.n << " at " << row << " " << column;
    }
  }
}

TEST_F(PackedDigits, AreAsExactAsFloats) {
  // Rows of less than a tile, of blocks and chunks of several sizes, and k in one slice or more.
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                                {5, 33, 17},
                                {16, 32, 32},
                                {33, 100, 48},
                                {49, 64, 80},
                                {196, 400, 40},
                                {300, 96, 33},
                                {70, 3000, 20},
                                {200, 2000, 36},
                                {200, 700, 300}}) {
    Product p(m, k, n);
    for (const bool in_place : {false, true}) ExpectExact(p, Multiply(p, 1 << 20, in_place));
    ExpectExact(p, Multiply(p, 1, true));
  }
}

// What a sum of products may be off by, in units of what the largest sums are made of.
double RootMeanSquareError(Product& p, const std::vector<float>& c) {
  double errors = 0, sums = 0;
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t column = 0; column < p.n; ++column) {
      const double exact = p.Exact(row, column);
      errors += std::pow(c[static_cast<size_t>(row * p.n + column)] - exact, 2);
      sums += exact * exact;
    }
  }
  return std::sqrt(errors / sums);
}

// Rounding is to either side: what elements are off by does not add up where none is negative.
// A matrix near enough to be read again for a few rows at a time, and one that is not.
TEST_F(PackedDigits, NeedNoMoreScratchMemoryForFewerRows) {
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{576, 64}, {2000, 200}}) {
    for (const int64_t rows : {48, 65, 130, 193, 257, 300, 321}) {
      for (const int64_t fewer : {1, 2, 3, 17, 64}) {
        if (fewer >= rows) continue;
        Product p(rows - fewer, k, n);
        Multiply(p, 1 << 20, false, rows);
      }
    }
  }
}

TEST_F(PackedDigits, AreAsExactForLongRowsOfOneSign) {
  for (const int64_t k : {64, 512, 4608}) {
    Product p(20, k, 40);
    for (float& a : p.a) a = std::abs(a);
    std::fill(p.bias.begin(), p.bias.end(), 0.0f);
    std::fill(p.sum.begin(), p.sum.end(), 0.0f);
    EXPECT_LT(RootMeanSquareError(p, Multiply(p, 1 << 20, false)), 3e-7) << k;
  }
}

// Whole numbers: what floats add without rounding, digits do.
TEST_F(PackedDigits, AddWholeNumbersExactly) {
  Product p(40, 1500, 40);
  for (std::vector<float>* each : {&p.a, &p.b, &p.bias, &p.sum}) {
    for (float& x : *each) x = std::round(x * 25);
  }
  const std::vector<float> c = Multiply(p, 1 << 20, false);
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t column = 0; column < p.n; ++column) {
      ASSERT_EQ(c[static_cast<size_t>(row * p.n + column)], p.Exact(row, column));
    }
  }
}

// Inputs whose units differ by far, and weights that make up for that.
TEST_F(PackedDigits, WeighElementsByWhatTheyAddToSums) {
  Product p(40, 96, 40);
  for (int64_t i = 0; i < p.k; ++i) {
    const float unit = std::pow(10.0f, static_cast<float>(i % 13 - 6));
    for (int64_t row = 0; row < p.m; ++row) p.A(row, i) *= unit;
    for (int64_t column = 0; column < p.n; ++column) p.B(column, i) /= unit;
  }
  ExpectExact(p, Multiply(p, 1 << 20, false));
}

// One element of a row is far above the others, and weighs nothing for some columns.
TEST_F(PackedDigits, LeaveRowsOfOneLargeElementAsTheyAre) {
  Product p(40, 700, 40);
  for (int64_t column = 0; column < 8; ++column) p.B(column, 5) = 0;
  p.A(3, 5) = 3e5f;
  p.A(20, 5) = -1e9f;
  const std::vector<float> c = Multiply(p, 1 << 20, false);
  for (const int64_t row : {3, 20, 21}) {
    for (int64_t column = 0; column < p.n; ++column) {
      const double exact = p.Exact(row, column);
      EXPECT_NEAR(c[static_cast<size_t>(row * p.n + column)], exact, 3e-5 + 4e-6 * std::abs(exact))
          << row << " " << column;
    }
  }
}

TEST_F(PackedDigits, TakeRowsInPieces) {
  for (const auto& [pieces, piece] :
       {std::array<int64_t, 2>{9, 32}, {3, 5}, {9, 48}, {4, 100}, {25, 7}, {9, 256}}) {
    Product p(150, pieces * piece, 35);
    p.piece = piece;
    ExpectExact(p, Multiply(p, 1 << 20, false));
  }
}

TEST_F(PackedDigits, KeepBoundsOfWholeSums) {
  Product p(130, 2500, 33);  // several slices: parts of a sum are not bounded
  p.low = -10;
  p.high = 20;
  ExpectExact(p, Multiply(p, 1 << 20, true));
}

TEST_F(PackedDigits, LeaveNumbersBeyondDigitsAsTheyAre) {
  Product p(150, 70, 40);
  p.A(3, 5) = kNan;
  p.A(4, 69) = kInfinity;
  p.A(5, 0) = 0x1p90f;
  p.A(149, 1) = 1e-42f;
  const std::vector<float> c = Multiply(p, 1 << 20, false);
  for (int64_t column = 0; column < p.n; ++column) {
    const auto at = [&](int64_t row) { return c[static_cast<size_t>(row * p.n + column)]; };
    EXPECT_TRUE(std::isnan(at(3)));
    EXPECT_EQ(at(4), p.B(column, 69) > 0 ? kInfinity : -kInfinity);
    EXPECT_NEAR(at(5) / p.Exact(5, column), 1, 1e-6);
    EXPECT_NEAR(at(6), p.Exact(6, column), 1e-5);
    EXPECT_NEAR(at(149), p.Exact(149, column), 1e-5);
  }
}

TEST_F(PackedDigits, LeaveWeightsBeyondDigitsAsTheyAre) {
  Product p(40, 70, 40);
  p.B(3, 5) = kNan;
  p.B(4, 69) = -kInfinity;
  p.B(5, 0) = std::numeric_limits<float>::max();
  const std::vector<float> c = Multiply(p, 1 << 20, false);
  for (int64_t row = 0; row < p.m; ++row) {
    const auto at = [&](int64_t column) { return c[static_cast<size_t>(row * p.n + column)]; };
    EXPECT_TRUE(std::isnan(at(3)));
    EXPECT_EQ(at(4), p.A(row, 69) > 0 ? -kInfinity : kInfinity);
    const double exact = p.Exact(row, 5);
    if (std::abs(exact) < 3.4e38) {
      EXPECT_NEAR(at(5) / exact, 1, 1e-6);
    } else {
      EXPECT_EQ(at(5), exact > 0 ? kInfinity : -kInfinity);
    }
    EXPECT_NEAR(at(6), p.Exact(row, 6), 1e-5);
  }
}

TEST_F(PackedDigits, LeaveColumnsOfHugeWeightsAsTheyAre) {
  Product p(40, 70, 40);
  for (int64_t column = 0; column < p.n; ++column) p.B(column, 5) = 3e38f;
  for (int64_t row = 0; row < p.m; ++row) p.A(row, 5) = row % 2 == 0 ? 0 : 1e-30f;
  const std::vector<float> c = Multiply(p, 1 << 20, false);
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t column = 0; column < p.n; ++column) {
      const double exact = p.Exact(row, column);
      EXPECT_NEAR(c[static_cast<size_t>(row * p.n + column)], exact, 2e-5 + 1e-6 * std::abs(exact));
    }
  }
}

// Weights so small beside others that these alone would count, and elements as large.
TEST_F(PackedDigits, KeepWhatSmallWeightsMakeOfLargeElements) {
  Product p(40, 70, 40);
  for (int64_t column = 0; column < p.n; ++column) p.B(column, 5) *= 0x1p-120f;
  for (int64_t row = 0; row < p.m; ++row) p.A(row, 5) = 0x1p120f;
  ExpectExact(p, Multiply(p, 1 << 20, false));
}

// Filters that training has switched off are tiny, and no reason to leave the tiles.
TEST_F(PackedDigits, TakeTinyWeights) {
  Product p(40, 64, 33);
  for (int64_t i = 0; i < p.k; ++i) p.B(7, i) *= 1e-25f;
  p.bias[7] = 0;
  for (int64_t row = 0; row < p.m; ++row) p.sum[static_cast<size_t>(row * p.n + 7)] = 0;
  const std::vector<float> c = Multiply(p, 1 << 20, false);
  for (int64_t row = 0; row < p.m; ++row) {
    EXPECT_NEAR(c[static_cast<size_t>(row * p.n + 7)] * 1e25, p.Exact(row, 7) * 1e25, 1e-5);
  }
}

}  // namespace
}  // namespace onnxd::math
