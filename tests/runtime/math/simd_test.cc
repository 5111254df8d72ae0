#include "runtime/math/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/every_simd.h"

namespace onnxd::math {
namespace {

// Each instruction set that this processor has faces the same references.
class EverySimd : public WithSimd {};

std::vector<float> Inputs() {
  std::vector<float> x = {0.0f,  -0.0f,  1e-30f,  -1e-30f, 88.0f,
                          89.0f, -87.0f, -104.0f, 1e30f,   -1e30f};
  std::mt19937 random(3);
  std::uniform_real_distribution<float> wide(-20, 20), narrow(-1, 1);
  for (int i = 0; i < 1003; ++i) x.push_back(i % 2 == 0 ? wide(random) : narrow(random));
  return x;
}

double Reference(Unary op, double x) {
  switch (op) {
    case Unary::kRelu:
      return x > 0 ? x : 0;
    case Unary::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Unary::kTanh:
      return std::tanh(x);
    case Unary::kExp:
      return std::exp(x);
    case Unary::kErf:
      return std::erf(x);
    case Unary::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Unary::kFastGelu:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Unary::kSilu:
      return x / (1 + std::exp(-x));
    case Unary::kHardSwish:
      return x * std::min(std::max(x / 6 + 0.5, 0.0), 1.0);
    case Unary::kSqrt:
      return std::sqrt(x);
    case Unary::kAbs:
      return std::abs(x);
    case Unary::kNeg:
      return -x;
    case Unary::kFloor:
      return std::floor(x);
    case Unary::kCeil:
      return std::ceil(x);
    case Unary::kRound:
      return std::nearbyint(x);
    case Unary::kLog:
      return std::log(x);
    case Unary::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    case Unary::kMish:
      return x * std::tanh(Reference(Unary::kSoftplus, x));
    case Unary::kSin:
      return std::sin(x);
    case Unary::kCos:
      return std::cos(x);
    case Unary::kAsin:
      return std::asin(x);
    case Unary::kAcos:
      return std::acos(x);
    case Unary::kAtan:
      return std::atan(x);
  }
  return 0;
}

TEST_P(EverySimd, UnaryFunctionsAgreeWithDouble) {
  const std::vector<float> x = Inputs();
  std::vector<float> out(x.size());
  for (int op = 0; op <= static_cast<int>(Unary::kAtan); ++op) {
    CurrentSimd().unary(static_cast<Unary>(op), x.data(), out.data(),
                        static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const auto wanted = static_cast<float>(Reference(static_cast<Unary>(op), x[i]));
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(out[i])) << op << " at " << x[i];
      } else if (std::isinf(wanted)) {
        EXPECT_EQ(out[i], wanted) << op << " at " << x[i];
      } else {
        // Gelu keeps what rounding leaves of 1 + erf near -1.
        const double absolute = op == static_cast<int>(Unary::kGelu) ? 1e-6 : 4e-7;
        EXPECT_NEAR(out[i], wanted, 2e-6 * std::abs(wanted) + absolute) << op << " at " << x[i];
      }
    }
  }
}

TEST_P(EverySimd, SumsRows) {
  for (const int64_t columns : {1, 15, 16, 130, 300}) {
    std::vector<float> x(static_cast<size_t>(columns) * 7), out(static_cast<size_t>(columns));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11);
    CurrentSimd().sum_rows(x.data(), 7, columns, out.data());
    for (int64_t column = 0; column < columns; ++column) {
      float wanted = 0;
      for (int64_t row = 0; row < 7; ++row)
        wanted += x[static_cast<size_t>(row * columns + column)];
      EXPECT_EQ(out[static_cast<size_t>(column)], wanted);
    }
  }
}

// Whole numbers, so that sums are exact in any order.
TEST_P(EverySimd, NormalizesColumns) {
  const math::Simd& simd = CurrentSimd();
  for (const int64_t n : {1, 5, 16, 21, 64, 93}) {
    const int64_t rows = 7;
    std::vector<float> x, mean, scale, bias;
    for (int64_t i = 0; i < rows * n; ++i) x.push_back(static_cast<float>(i * i % 11));
    for (int64_t c = 0; c < n; ++c) {
      mean.push_back(static_cast<float>(c % 4));
      scale.push_back(static_cast<float>(c % 3));
      bias.push_back(static_cast<float>(c % 5));
    }
    std::vector<float> squares(mean.size()), wanted_squares(mean.size()), out(x.size());
    simd.sum_square_rows(x.data(), rows, n, mean.data(), squares.data());
    simd.normalize_rows(x.data(), rows, n, mean.data(), scale.data(), bias.data(), out.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % static_cast<size_t>(n);
      const float deviation = x[i] - mean[c];
      wanted_squares[c] += deviation * deviation;
      EXPECT_EQ(out[i], deviation * scale[c] + bias[c]) << n;
    }
    EXPECT_EQ(squares, wanted_squares) << n;
  }
}

TEST_P(EverySimd, NanComesThrough) {
  std::vector<float> x(40, std::numeric_limits<float>::quiet_NaN()), out(40);
  // Also with every bit set.
  for (size_t i = 0; i < 20; ++i) x[i] = std::bit_cast<float>(i % 2 == 0 ? 0x7fffffffu : ~0u);
  for (const Unary op : {Unary::kRelu, Unary::kSigmoid, Unary::kTanh, Unary::kExp, Unary::kErf,
                         Unary::kFloor, Unary::kRound, Unary::kLog, Unary::kSoftplus, Unary::kMish,
                         Unary::kSin, Unary::kCos, Unary::kAsin, Unary::kAcos, Unary::kAtan}) {
    CurrentSimd().unary(op, x.data(), out.data(), 40);
    for (const float y : out) EXPECT_TRUE(std::isnan(y)) << static_cast<int>(op);
  }
  EXPECT_TRUE(std::isnan(CurrentSimd().max(x.data(), 40)));
}

TEST_P(EverySimd, GemmAgreesWithThreeLoops) {
  const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {12, 32, 16}, {13, 33, 65}, {50, 70, 20}};
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const auto& [m, n, k] : sizes) {
    std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)),
        bias(static_cast<size_t>(n)), c(static_cast<size_t>(m * n), 2.0f);
    for (auto* list : {&a, &b, &bias}) {
      for (float& value : *list) value = uniform(random);
    }
    std::vector<float> packed(static_cast<size_t>(PackedBSize(CurrentSimd(), k, n)));
    for (const auto& [accumulate, bounded] :
         {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      std::fill(c.begin(), c.end(), 2.0f);
      CurrentSimd().pack_b(b.data(), n, false, k, n, packed.data());
      GemmArguments g{m, n, k, a.data(), k, packed.data(), c.data(), n};
      g.bias = bias.data();
      g.accumulate = accumulate;
      if (bounded) g.low = -0.25f, g.high = 1.5f;
      CurrentSimd().gemm(g);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double wanted = (accumulate ? 2.0 : 0.0) + bias[static_cast<size_t>(j)];
          for (int64_t p = 0; p < k; ++p) {
            wanted += static_cast<double>(a[static_cast<size_t>(i * k + p)]) *
                      b[static_cast<size_t>(p * n + j)];
          }
          if (bounded) wanted = std::clamp(wanted, -0.25, 1.5);
          EXPECT_NEAR(c[static_cast<size_t>(i * n + j)], wanted, 1e-5);
        }
      }
    }
  }
}

// Depths of which registers hold a matrix, and others; rows of A that follow each other and rows at
// a stride; whole numbers, so that sums are exact.
TEST_P(EverySimd, GemmOfFewElementsIsExact) {
  const auto number = [](int64_t i) { return static_cast<float>(i % 7 - 3); };
  const auto check = [&](int64_t m, int64_t n, int64_t k, int64_t lda, bool has_bias) {
    const int64_t ldc = n + 5;  // nothing beyond n is touched
    std::vector<float> a(static_cast<size_t>(m * lda)), b(static_cast<size_t>(k * n)),
        bias(static_cast<size_t>(n)), wanted(static_cast<size_t>(m * ldc), 9.0f), c(wanted),
        packed(static_cast<size_t>(PackedBSize(CurrentSimd(), k, n)));
    for (int64_t i = 0; i < m * lda; ++i) a[static_cast<size_t>(i)] = number(i * i + i / 5);
    for (int64_t i = 0; i < k * n; ++i) b[static_cast<size_t>(i)] = number(i * 5 + i / n);
    for (int64_t i = 0; i < n; ++i) bias[static_cast<size_t>(i)] = number(i);
    CurrentSimd().pack_b(b.data(), n, false, k, n, packed.data());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float sum = has_bias ? bias[static_cast<size_t>(j)] : 0.0f;
        for (int64_t p = 0; p < k; ++p) {
          sum += a[static_cast<size_t>(i * lda + p)] * b[static_cast<size_t>(p * n + j)];
        }
        wanted[static_cast<size_t>(i * ldc + j)] = std::clamp(sum, -20.0f, 25.0f);
      }
    }
    GemmArguments g{m, n, k, a.data(), lda, packed.data(), c.data(), ldc};
    if (has_bias) g.bias = bias.data();
    g.low = -20, g.high = 25;
    CurrentSimd().gemm(g);
    ASSERT_EQ(c, wanted) << m << " x " << n << " of " << k << ", rows of A at " << lda;
  };
  for (const int64_t k : {8, 12, 15, 16, 20, 24}) {
    for (const int64_t m : {16, 17, 22, 56}) {
      for (const int64_t n : {16, 48, 80}) {
        for (const int64_t lda : {k, k + 3}) {
          for (const bool has_bias : {false, true}) check(m, n, k, lda, has_bias);
        }
      }
    }
  }
}

// Small whole numbers, so that sums are exact in any order: every width of C, rows at a stride, in
// pieces that lie anywhere, and in columns.
TEST_P(EverySimd, GemmStoresEveryWidth) {
  const auto number = [](int64_t i) { return static_cast<float>(i % 7 - 3); };
  const int64_t k = 30, piece = 5, pieces = k / piece;
  for (const int64_t m : {1, 2, 3, 6, 11, 15}) {
    std::vector<float> a(static_cast<size_t>(m * k)), scattered(static_cast<size_t>(m * k));
    std::vector<const float*> addresses(static_cast<size_t>(m * pieces));
    for (int64_t i = 0; i < m * k; ++i) a[static_cast<size_t>(i)] = number(i * i + i / k);
    for (int64_t i = 0; i < m * pieces; ++i) {  // backwards
      const int64_t to = (m * pieces - 1 - i) * piece;
      std::copy_n(a.data() + i * piece, piece, scattered.data() + to);
      addresses[static_cast<size_t>(i)] = scattered.data() + to;
    }
    std::vector<float> turned(static_cast<size_t>(2 * m * k));  // two elements for each
    std::vector<const float*> of_columns;
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t i = 0; i < m; ++i) {
        turned[static_cast<size_t>(2 * (p * m + i))] = a[static_cast<size_t>(i * k + p)];
      }
      of_columns.push_back(turned.data() + 2 * p * m);
    }
    for (int64_t n = 1; n <= 2 * CurrentSimd().gemm_width + 1; ++n) {
      std::vector<float> b(static_cast<size_t>(k * n)), bias(static_cast<size_t>(n));
      for (int64_t i = 0; i < k * n; ++i) b[static_cast<size_t>(i)] = number(i * 5 + i / n);
      for (int64_t i = 0; i < n; ++i) bias[static_cast<size_t>(i)] = number(i);
      std::vector<float> packed(static_cast<size_t>(PackedBSize(CurrentSimd(), k, n)));
      CurrentSimd().pack_b(b.data(), n, false, k, n, packed.data());
      const int64_t ldc = n + 3;  // nothing beyond n is touched
      std::vector<float> wanted(static_cast<size_t>(m * ldc), 9.0f);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          float sum = 9.0f + bias[static_cast<size_t>(j)];
          for (int64_t p = 0; p < k; ++p) {
            sum += a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(p * n + j)];
          }
          wanted[static_cast<size_t>(i * ldc + j)] = std::clamp(sum, -20.0f, 25.0f);
        }
      }
      for (const bool in_pieces : {false, true}) {
        std::vector<float> c(static_cast<size_t>(m * ldc), 9.0f);
        GemmArguments g{m, n, k, in_pieces ? nullptr : a.data(), k, packed.data(), c.data(), ldc};
        g.bias = bias.data();
        g.accumulate = true;
        g.low = -20.0f, g.high = 25.0f;
        if (in_pieces) {
          GemmArguments by_column = g;
          by_column.lda = 2;
          by_column.columns = of_columns.data();
          CurrentSimd().gemm(by_column);
          ASSERT_EQ(c, wanted) << m << " x " << n << ", in columns";
          std::fill(c.begin(), c.end(), 9.0f);
          g.pieces = addresses.data(), g.piece = piece;
        }
        CurrentSimd().gemm(g);
        ASSERT_EQ(c, wanted) << m << " x " << n << (in_pieces ? ", in pieces" : "");
        std::vector<uint16_t> narrow(packed.size());
        for (const NarrowFloat type : {NarrowFloat::kFloat16, NarrowFloat::kBfloat16}) {
          const auto count = static_cast<int64_t>(packed.size());
          if (type == NarrowFloat::kFloat16) {
            CurrentSimd().narrow_float16(packed.data(), narrow.data(), count);
          } else {
            CurrentSimd().narrow(packed.data(), narrow.data(), nullptr, count);
          }
          std::fill(c.begin(), c.end(), 9.0f);
          CurrentSimd().narrow_gemm(g, narrow.data(), type);
          ASSERT_EQ(c, wanted) << m << " x " << n << " of type " << static_cast<int>(type);
        }
        if (CurrentSimd().pair_gemm != nullptr && n <= kMostPairColumns && !in_pieces) {
          std::vector<float> turned_b(static_cast<size_t>(n * k));
          for (int64_t i = 0; i < k * n; ++i) {
            turned_b[static_cast<size_t>(i % n * k + i / n)] = b[static_cast<size_t>(i)];
          }
          std::vector<float> pairs(static_cast<size_t>(PackedPairsSize(k, n)));
          CurrentSimd().pack_pairs(turned_b.data(), k, n, pairs.data());
          GemmArguments of_pairs = g;
          of_pairs.packed_b = pairs.data();
          std::fill(c.begin(), c.end(), 9.0f);
          CurrentSimd().pair_gemm(of_pairs);
          ASSERT_EQ(c, wanted) << m << " x " << n << " by pair_gemm";
        }
        if (n > kMostFewColumns) continue;
        const int64_t depth = k + 2;
        std::vector<float> columns(static_cast<size_t>(n * depth));
        for (int64_t i = 0; i < k * n; ++i) {
          columns[static_cast<size_t>(i % n * depth + i / n)] = b[static_cast<size_t>(i)];
        }
        std::fill(c.begin(), c.end(), 9.0f);
        g.packed_b = columns.data();
        g.panel_rows = depth;
        CurrentSimd().few_columns(g);
        ASSERT_EQ(c, wanted) << m << " x " << n << " by few_columns, in pieces: " << in_pieces;
      }
    }
  }
}

TEST_P(EverySimd, RowsAreWeighed) {
  const auto number = [](size_t i) { return static_cast<float>(i % 7) - 3; };
  for (const size_t n : {1, 7, 16, 64, 80, 131}) {
    for (const size_t count : {0, 1, 2, 9}) {
      const size_t stride = n + 3;
      std::vector<float> rows(count * stride + n), weights(count), out(n + 1, 9.0f);
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = number(i);
      for (size_t i = 0; i < count; ++i) weights[i] = number(3 * i + 1);
      CurrentSimd().weigh_rows(rows.data(), static_cast<int64_t>(stride),
                               static_cast<int64_t>(count), weights.data(), out.data(),
                               static_cast<int64_t>(n));
      for (size_t c = 0; c < n; ++c) {
        float wanted = 0;
        for (size_t i = 0; i < count; ++i) wanted += weights[i] * rows[i * stride + c];
        EXPECT_EQ(out[c], wanted) << n << " " << count << " " << c;
      }
      EXPECT_EQ(out[n], 9.0f);
    }
  }
}

TEST_P(EverySimd, GemmKeepsWhatIsNoNumber) {
  const int64_t n = CurrentSimd().gemm_width + 1;
  std::vector<float> b(static_cast<size_t>(n), 1.0f), c(static_cast<size_t>(n));
  std::vector<float> packed(static_cast<size_t>(PackedBSize(CurrentSimd(), 1, n)));
  CurrentSimd().pack_b(b.data(), n, false, 1, n, packed.data());
  const float none = std::nanf("");
  CurrentSimd().gemm({1, n, 1, &none, 1, packed.data(), c.data(), n});
  for (const float x : c) EXPECT_TRUE(std::isnan(x));
}

// Small whole numbers, so that sums are exact in any order.
void CompareFewRows(int64_t k, std::vector<int64_t> rows) {
  const int64_t n = 150, panels = (n + kFewRowsPanel - 1) / kFewRowsPanel;
  const int64_t stride = (k + 3) * kFewRowsPanel;
  const auto number = [](int64_t i) { return static_cast<float>(i % 7 - 3); };
  std::vector<float> b(static_cast<size_t>(panels * stride));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t p = 0; p < k; ++p) {
      b[static_cast<size_t>(j / kFewRowsPanel * stride + p * kFewRowsPanel + j % kFewRowsPanel)] =
          number(p * n + j);
    }
  }
  std::vector<float> bias(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) bias[static_cast<size_t>(j)] = number(5 * j);
  for (const int64_t m : rows) {
    std::vector<float> a(static_cast<size_t>(m * k));
    for (size_t i = 0; i < a.size(); ++i) a[i] = number(static_cast<int64_t>(3 * i));
    for (const bool accumulate : {false, true}) {
      std::vector<float> c(static_cast<size_t>(m * n), 2.0f);
      FewRowsArguments g{m, n, k, a.data(), k, b.data(), stride, c.data(), n};
      g.bias = accumulate ? nullptr : bias.data();
      g.accumulate = accumulate;
      CurrentSimd().few_rows(g, 0, 1);
      CurrentSimd().few_rows(g, 1, panels);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          float wanted = accumulate ? 2.0f : bias[static_cast<size_t>(j)];
          for (int64_t p = 0; p < k; ++p) {
            wanted += a[static_cast<size_t>(i * k + p)] * number(p * n + j);
          }
          EXPECT_EQ(c[static_cast<size_t>(i * n + j)], wanted) << m << " " << i << " " << j;
        }
      }
    }
  }
}

TEST_P(EverySimd, FewRowsAgreeWithThreeLoops) {
  if (CurrentSimd().few_rows == nullptr) GTEST_SKIP() << "no 512-bit registers";
  std::vector<int64_t> all(kMostFewRows);
  std::iota(all.begin(), all.end(), 1);
  CompareFewRows(37, all);
  CompareFewRows(0, {1, 13});
  // In several blocks of depth, where several tiles share them.
  for (const int64_t k : {512, 513, 1500}) CompareFewRows(k, {6, 7, 18, 30});
}

// What has parameters, in every length and near 0.
TEST_P(EverySimd, FunctionsWithParametersAgreeWithDouble) {
  const math::Simd& simd = CurrentSimd();
  for (const int64_t n : {1, 7, 37}) {
    std::vector<float> x, leaky(static_cast<size_t>(n)), elu(leaky), swish(leaky);
    for (int64_t i = 0; i < n; ++i) {
      x.push_back(static_cast<float>(i * 5 % 37 - 18) * (i % 3 == 0 ? 1e-4f : 0.7f));
    }
    simd.leaky_relu(x.data(), leaky.data(), n, 0.5f);
    simd.elu(x.data(), elu.data(), n, 1.5f, 2.0f, 0.25f);
    simd.swish(x.data(), swish.data(), n, 1.7f);
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i];
      EXPECT_EQ(leaky[i], v < 0 ? 0.5f * x[i] : x[i]);
      const double wanted = v < 0 ? 2 * std::expm1(0.25 * v) : 1.5 * v;
      EXPECT_NEAR(elu[i], wanted, 1e-6 * std::abs(wanted)) << v;
      EXPECT_NEAR(swish[i], v / (1 + std::exp(-1.7 * v)), 2e-6 * std::abs(v)) << v;
    }
  }
}

TEST_P(EverySimd, WholeNumbersKeepTheirSigns) {
  const std::vector<float> x = {-0.0f,       0.0f,  -0.5f,      0.5f,       1.5f,  2.5f,   -2.5f,
                                0.49999997f, -1e9f, 8388609.0f, 8388607.5f, -3.7f, 1e-40f, -1e-40f};
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> floors(x.size()), ceils(x.size()), rounds(x.size());
  CurrentSimd().unary(Unary::kFloor, x.data(), floors.data(), n);
  CurrentSimd().unary(Unary::kCeil, x.data(), ceils.data(), n);
  CurrentSimd().unary(Unary::kRound, x.data(), rounds.data(), n);
  const auto expect = [](float got, float wanted) {
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(std::signbit(got), std::signbit(wanted)) << wanted;
  };
  for (size_t i = 0; i < x.size(); ++i) {
    expect(floors[i], std::floor(x[i]));
    expect(ceils[i], std::ceil(x[i]));
    expect(rounds[i], std::nearbyint(x[i]));
  }
}

TEST_P(EverySimd, LogarithmsOfExtremesAreExact) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0f,   -0.0f, -1.0f,   kInfinity, 1e-45f,
                                3e-39f, 1.0f,  3.4e38f, -kInfinity};
  std::vector<float> out(x.size());
  CurrentSimd().unary(Unary::kLog, x.data(), out.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const float wanted = std::log(x[i]);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(out[i])) << x[i];
    } else {
      EXPECT_FLOAT_EQ(out[i], wanted) << x[i];
    }
  }
}

// Arguments whose quarter turns are few, many and too many to be subtracted.
TEST_P(EverySimd, SinesOfLargeNumbers) {
  std::vector<float> x;
  for (int i = 0; i < 2000; ++i) x.push_back(static_cast<float>(i - 1000) * 12.345f);
  for (const float far : {1e5f, -3e7f, 1e30f}) x.push_back(far);
  std::vector<float> sines(x.size()), cosines(x.size());
  CurrentSimd().unary(Unary::kSin, x.data(), sines.data(), static_cast<int64_t>(x.size()));
  CurrentSimd().unary(Unary::kCos, x.data(), cosines.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(sines[i], std::sin(static_cast<double>(x[i])), 4e-7) << x[i];
    EXPECT_NEAR(cosines[i], std::cos(static_cast<double>(x[i])), 4e-7) << x[i];
  }
}

TEST_P(EverySimd, ReductionsAgree) {
  const std::vector<float> x = {3, -1, 4, 1, -5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4,
                                6, 2,  6, 4, 3,  3, 8, 3, 2, 7, 9, 5, 0, 2, 8, 8, 4, 1, 9, 7};
  double sum = 0, squares = 0;
  for (const float value : x) {
    sum += value;
    squares += (value - 2.0) * (value - 2.0);
  }
  const auto n = static_cast<int64_t>(x.size());
  EXPECT_FLOAT_EQ(CurrentSimd().sum(x.data(), n), static_cast<float>(sum));
  EXPECT_FLOAT_EQ(CurrentSimd().sum_of_squares(x.data(), n, 2.0f), static_cast<float>(squares));
  EXPECT_EQ(CurrentSimd().max(x.data(), n), 9.0f);
}

TEST_P(EverySimd, RanksAreThoseOfAStableSort) {
  for (int64_t n = 0; n <= 70; ++n) {
    std::vector<int32_t> keys, ranks(static_cast<size_t>(n) + 20, -7);
    for (int64_t i = 0; i < n; ++i) {
      keys.push_back(static_cast<int32_t>(i * 37 % 11 - 5) * 400000000);
    }
    CurrentSimd().ranks(keys.data(), n, ranks.data());
    for (int64_t i = 0; i < n; ++i) {
      int32_t before = 0;
      for (int64_t j = 0; j < n; ++j) {
        const int32_t own = keys[static_cast<size_t>(i)], other = keys[static_cast<size_t>(j)];
        before += other < own || (other == own && j < i) ? 1 : 0;
      }
      EXPECT_EQ(ranks[static_cast<size_t>(i)], before) << i << " of " << n;
    }
    EXPECT_EQ(ranks[static_cast<size_t>(n)], -7);
  }
}

TEST_P(EverySimd, SoftmaxsPartsHoldForEveryLength) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const math::Simd& simd = CurrentSimd();
  EXPECT_EQ(simd.max(nullptr, 0), -std::numeric_limits<float>::infinity());
  for (int64_t n = 1; n <= 70; ++n) {
    // What lies beyond must neither count nor change.
    std::vector<float> x(static_cast<size_t>(n) + 20, 1e30f), out(x.size(), 7.0f);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      x[static_cast<size_t>(i)] = static_cast<float>(i * 37 % n) / 10.0f - 3.0f;
      sum += std::exp((x[static_cast<size_t>(i)] - 1.0) * 0.5);
    }
    const float largest = *std::max_element(x.begin(), x.begin() + n);
    EXPECT_EQ(simd.max(x.data(), n), largest) << n;
    EXPECT_NEAR(simd.exp_sum(x.data(), out.data(), n, 1.0f, 0.5f), sum, 1e-5 * sum) << n;
    for (size_t i = 0; i < out.size(); ++i) {
      const double wanted = i < static_cast<size_t>(n) ? std::exp((x[i] - 1.0) * 0.5) : 7.0;
      ASSERT_NEAR(out[i], wanted, 1e-5 * wanted) << n << " at " << i;
    }
    for (int64_t at = 0; at < n; ++at) {
      std::swap(x[static_cast<size_t>(at)], out[0] = kNan);
      EXPECT_TRUE(std::isnan(simd.max(x.data(), n))) << n << " at " << at;
      std::swap(x[static_cast<size_t>(at)], out[0]);
    }
  }
}

// A depthwise convolution of a whole image, compared with the sum over its window in doubles, and
// the sums of its channels.
struct DepthwiseCase {
  int64_t channels, width, window, stride, pad;
  bool silu, wants_sums;
};

void ExpectDepthwise(const DepthwiseCase& c) {
  constexpr int64_t kHeight = 5;
  const int64_t rows = (kHeight + 2 * c.pad - c.window) / c.stride + 1;
  const int64_t columns = (c.width + 2 * c.pad - c.window) / c.stride + 1;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> numbers(-1, 1);
  const auto filled = [&](int64_t count) {
    std::vector<float> list(static_cast<size_t>(count));
    for (float& x : list) x = numbers(random);
    return list;
  };
  const auto x = filled(kHeight * c.width * c.channels), bias = filled(c.channels);
  const auto w = filled(c.window * c.window * c.channels);
  std::vector<float> out(static_cast<size_t>(rows * columns * c.channels));
  constexpr int64_t kFirstSum = 3;
  std::vector<float> sums(static_cast<size_t>(c.channels), 3.0f);
  std::vector<const float*> image_rows;
  for (int64_t i = 0; i < rows * c.window; ++i) {
    const int64_t row = i / c.window * c.stride - c.pad + i % c.window;
    const bool inside = row >= 0 && row < kHeight;
    image_rows.push_back(inside ? x.data() + row * c.width * c.channels : nullptr);
  }
  CurrentSimd().depthwise({image_rows.data(), c.width, c.channels, c.channels, c.channels, w.data(),
                           c.window, c.window, c.stride, c.pad, bias.data(), c.silu, -0.2f, 1.5f,
                           out.data(), rows, columns, c.wants_sums ? sums.data() : nullptr,
                           kFirstSum});
  for (int64_t channel = 0; c.wants_sums && channel < c.channels; ++channel) {
    double sum = 3.0;
    for (int64_t i = channel; channel >= kFirstSum && i < rows * columns * c.channels;
         i += c.channels) {
      sum += static_cast<double>(out[static_cast<size_t>(i)]);
    }
    ASSERT_NEAR(sums[static_cast<size_t>(channel)], sum,
                1e-5 * static_cast<double>(rows * columns));
  }
  for (int64_t i = 0; i < rows * columns * c.channels; ++i) {
    const int64_t channel = i % c.channels, column = i / c.channels % columns;
    double sum = bias[static_cast<size_t>(channel)];
    for (int64_t at = 0; at < c.window * c.window; ++at) {
      const float* row =
          image_rows[static_cast<size_t>(i / c.channels / columns * c.window + at / c.window)];
      const int64_t from = column * c.stride - c.pad + at % c.window;
      if (row == nullptr || from < 0 || from >= c.width) continue;
      sum += static_cast<double>(row[from * c.channels + channel]) *
             w[static_cast<size_t>(at * c.channels + channel)];
    }
    if (c.silu) sum /= 1 + std::exp(-sum);
    ASSERT_NEAR(out[static_cast<size_t>(i)], std::min(std::max(sum, -0.2), 1.5), 2e-6)
        << "element " << i << " of " << c.channels << " channels, width " << c.width << ", window "
        << c.window << ", stride " << c.stride << ", padding " << c.pad;
  }
}

TEST_P(EverySimd, DepthwiseConvolvesAnyWidthAndPadding) {
  for (const int64_t channels : {1, 3, 7, 12, 16, 23, 48}) {
    for (const int64_t width : {5, 8, 14, 17}) {
      for (const int64_t window : {3, 5, 7}) {
        for (const int64_t stride : {1, 2}) {
          for (const int64_t pad : {window / 2, int64_t{0}, window + 1}) {
            if (5 + 2 * pad < window) continue;
            for (const bool wants_sums : {false, true}) {
              ExpectDepthwise({channels, width, window, stride, pad, stride == 2, wants_sums});
            }
          }
        }
      }
    }
  }
}

// Rows of a convolution in groups, compared with the sum over its window in doubles.
struct GroupCase {
  int64_t group, groups, width, stride, pad;
};

void ExpectGroups(const GroupCase& c) {
  constexpr int64_t kHeight = 6;
  const int64_t lanes = CurrentSimd().gemm_width / 2, channels = c.group * c.groups;
  if (!TakesGroup(c.group, lanes) || channels % lanes != 0) return;
  const int64_t rows = (kHeight + 2 * c.pad - 3) / c.stride + 1;
  const int64_t columns = (c.width + 2 * c.pad - 3) / c.stride + 1;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> numbers(-1, 1);
  const auto filled = [&](int64_t count) {
    std::vector<float> list(static_cast<size_t>(count));
    for (float& x : list) x = numbers(random);
    return list;
  };
  const auto x = filled(kHeight * c.width * channels), bias = filled(channels);
  const auto w = filled(channels * 9 * c.group);  // as group_conv reads them
  std::vector<float> out(static_cast<size_t>(rows * columns * channels), 7.0f);
  for (int64_t row = 0; row < rows; row += 3) {
    CurrentSimd().group_conv({x.data(), kHeight, c.width, channels, c.group, w.data(), c.stride,
                              c.pad, c.pad, bias.data(), -1.2f, 1.5f,
                              out.data() + row * columns * channels, row,
                              std::min<int64_t>(3, rows - row), columns});
  }
  for (int64_t i = 0; i < rows * columns * channels; ++i) {
    const int64_t channel = i % channels, column = i / channels % columns;
    const int64_t row = i / channels / columns;
    double sum = bias[static_cast<size_t>(channel)];
    for (int64_t at = 0; at < 9 * c.group; ++at) {
      const int64_t from = channel / c.group * c.group + at % c.group;
      const int64_t dy = at / c.group / 3, dx = at / c.group % 3;
      const int64_t y = row * c.stride - c.pad + dy, z = column * c.stride - c.pad + dx;
      if (y < 0 || y >= kHeight || z < 0 || z >= c.width) continue;
      const int64_t filter = ((channel / lanes * 3 + dy) * c.group + at % c.group) * 3 + dx;
      sum += static_cast<double>(x[static_cast<size_t>((y * c.width + z) * channels + from)]) *
             w[static_cast<size_t>(filter * lanes + channel % lanes)];
    }
    const double tolerance = 3e-6 * std::sqrt(9.0 * static_cast<double>(c.group));
    ASSERT_NEAR(out[static_cast<size_t>(i)], std::min(std::max(sum, -1.2), 1.5), tolerance)
        << "element " << i << " of " << c.groups << " groups of " << c.group << ", width "
        << c.width << ", stride " << c.stride << ", padding " << c.pad;
  }
}

TEST_P(EverySimd, ConvolvesInGroupsAnyWidthAndPadding) {
  for (const int64_t group : {4, 8, 12, 16, 24, 40}) {
    for (const int64_t groups : {2, 4}) {
      for (const int64_t width : {3, 4, 7, 8, 17}) {
        for (const int64_t stride : {1, 2}) {
          for (const int64_t pad : {0, 1, 3}) ExpectGroups({group, groups, width, stride, pad});
        }
      }
    }
  }
  ExpectGroups({16, 2, 300, 1, 1});  // wider than what is copied at a time
  ExpectGroups({128, 2, 40, 2, 1});
}

INSTANTIATE_TEST_SUITE_P(Sets, EverySimd, EverySimdName());

}  // namespace
}  // namespace onnxd::math
