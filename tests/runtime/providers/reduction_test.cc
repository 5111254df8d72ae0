// Reductions and normalizations.
#include <cmath>
#include <limits>
#include <random>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// Leading axes, whose rows are taken whole: as many columns as several parts have, and NaN.
TEST(Reduction, OfLeadingAxes) {
  const int64_t planes = 2, rows = 3, columns = 300;
  std::vector<float> numbers(static_cast<size_t>(planes * rows * columns));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 37 % 101) * 0.1f;
  numbers[7] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>(Shape{planes, rows, columns}, numbers);
  const auto expect = [&](const char* op, const std::vector<int64_t>& axes, auto add, bool mean) {
    const auto y =
        Elements(RunOp(op, {x}, With({{"axes", axes}, {"keepdims", int64_t{0}}}), {.opset = 11}));
    const bool both = axes.size() == 2;
    ASSERT_EQ(y.size(), static_cast<size_t>(both ? columns : planes * columns));
    for (size_t at = 0; at < y.size(); ++at) {
      const int64_t plane = static_cast<int64_t>(at) / columns;
      const float* from =
          x.data<float>() + plane * rows * columns + static_cast<int64_t>(at) % columns;
      double total = *from;
      const int64_t count = both ? planes * rows : rows;
      for (int64_t i = 1; i < count; ++i) total = add(total, double{from[i * columns]});
      if (mean) total /= static_cast<double>(count);
      if (std::isnan(total)) {
        EXPECT_TRUE(std::isnan(y[at])) << op << " " << at;
      } else {
        EXPECT_NEAR(y[at], total, 1e-5 * (1 + std::abs(total))) << op << " " << at;
      }
    }
  };
  const auto sum = [](double a, double b) { return a + b; };
  const auto largest = [](double a, double b) { return a > b || std::isnan(a) ? a : b; };
  const auto least = [](double a, double b) { return a < b || std::isnan(a) ? a : b; };
  for (const auto& axes : {I{1}, I{0, 1}}) {
    expect("ReduceSum", axes, sum, false);
    expect("ReduceMean", axes, sum, true);
    expect("ReduceMax", axes, largest, false);
    expect("ReduceMin", axes, least, false);
    expect(
        "ReduceProd", axes, [](double a, double b) { return a * b; }, false);
  }
}

// One number added after the other would be off by 6e-5.
TEST(Reduction, MeansOfManyRowsAreExact) {
  constexpr int64_t kRows = 400'000, kColumns = 9;
  Tensor x = *Tensor::Create(DataType::kFloat, Shape{kRows, kColumns});
  std::mt19937 random(1);
  std::uniform_real_distribution<float> numbers(3, 4);
  std::generate_n(x.mutable_data<float>(), x.ElementCount(), [&] { return numbers(random); });
  std::vector<double> means(kColumns);
  for (int64_t i = 0; i < x.ElementCount(); ++i) {
    means[static_cast<size_t>(i % kColumns)] += static_cast<double>(x.data<float>()[i]) / kRows;
  }
  const F y = Elements(RunOp("ReduceMean", {x}, With({{"axes", I{0}}}), {.opset = 13}));
  ASSERT_EQ(y.size(), means.size());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], means[i], 1e-5);
}

// Trailing axes of few elements, of which many outputs are taken at once; one more than that.
TEST(Reduction, TheLargestAndTheLeastOfShortRows) {
  for (const int64_t elements : {2, 3, 8, 9}) {
    constexpr int64_t kOutputs = 301;
    std::vector<float> numbers(static_cast<size_t>(kOutputs * elements));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 37 % 101) - 50;
    numbers[static_cast<size_t>(elements * 17 + 1)] = std::numeric_limits<float>::quiet_NaN();
    const Tensor x = Tensor::Of<float>(Shape{7, kOutputs / 7, elements}, numbers);
    const Attributes last = With({{"axes", I{-1}}, {"keepdims", int64_t{0}}});
    const F largest = Elements(RunOp("ReduceMax", {x}, last, {.opset = 13}));
    const F least = Elements(RunOp("ReduceMin", {x}, last, {.opset = 13}));
    ASSERT_EQ(largest.size(), static_cast<size_t>(kOutputs));
    ASSERT_EQ(least.size(), static_cast<size_t>(kOutputs));
    for (int64_t i = 0; i < kOutputs; ++i) {
      const auto at = static_cast<size_t>(i);
      const auto row = numbers.begin() + i * elements;
      if (i == 17) {
        EXPECT_TRUE(std::isnan(largest[at]) && std::isnan(least[at]));
      } else {
        EXPECT_EQ(largest[at], *std::max_element(row, row + elements)) << elements << ", " << i;
        EXPECT_EQ(least[at], *std::min_element(row, row + elements)) << elements << ", " << i;
      }
    }
  }
}

TEST(Reduction, OfOneAxisAndOfAll) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, -6});
  EXPECT_EQ(Elements(RunOp("ReduceMean", {m}, With({{"axes", I{0}}, {"keepdims", int64_t{0}}}),
                           {.opset = 17})),
            (F{2.5, 3.5, -1.5}));
  EXPECT_EQ(Elements(RunOp("ReduceMax", {m}, With({{"axes", I{1}}}), {.opset = 17})), (F{3, 5}));
  EXPECT_EQ(Elements(RunOp("ReduceMax", {m, Ints(Shape{1}, {0})})), (F{4, 5, 3}));
  EXPECT_EQ(Elements(RunOp("ReduceSum", {m})), (F{9}));
  EXPECT_EQ(Elements(RunOp("ReduceL1", {m})), (F{21}));
  EXPECT_NEAR(Elements(RunOp("ReduceLogSumExp", {m}))[0], 5.4519f, 1e-3);
  EXPECT_EQ(Elements<int64_t>(RunOp("ArgMax", {m}, With({{"axis", int64_t{1}}}))), (I{2, 1}));
  EXPECT_EQ(Elements(RunOp("CumSum", {m, Tensor::Scalar(int64_t{1})}, {}, {.constants = 0b10})),
            (F{1, 3, 6, 4, 9, 3}));
}

TEST(Softmax, BeforeAndSinceOpset13) {
  const Tensor x = Floats(Shape{1, 2, 2}, {0, 0, 0, 0});
  EXPECT_EQ(Elements(RunOp("Softmax", {x}, {}, {.opset = 13})), (F{0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(Elements(RunOp("Softmax", {x}, {}, {.opset = 12})), (F{0.25, 0.25, 0.25, 0.25}));
}

TEST(LayerNormalization, GivesRowsOfMeanZero) {
  const auto outputs = RunOp("LayerNormalization",
                             {Floats(Shape{2, 4}, {1, 2, 3, 4, -5, 5, -5, 5}),
                              Floats(Shape{4}, {1, 1, 1, 1}), Floats(Shape{4}, {0, 0, 0, 1})},
                             {}, {.constants = 0, .outputs = 2});
  const F y = Elements(outputs, 0);
  EXPECT_NEAR(y[0], -1.3416f, 1e-3);
  EXPECT_NEAR(y[5], 1.0f, 1e-4);
  EXPECT_NEAR(y[7], 2.0f, 1e-4);
  EXPECT_NEAR(Elements(outputs, 1)[0], 2.5f, 1e-6);
}

// LayerNormalization-17: scale and bias broadcast to the input.
TEST(LayerNormalization, BroadcastsScaleAndBias) {
  const Tensor x = Floats(Shape{2, 2, 2}, {-1, 1, 1, -1, 3, 5, -5, -3});
  const auto normalized = [&](const Tensor& scale, const Tensor& bias, int64_t axis) {
    F rounded = Elements(
        RunOp("LayerNormalization", {x, scale, bias}, With({{"axis", axis}, {"epsilon", 0.0f}})));
    for (float& y : rounded) y = std::round(y);
    return rounded;
  };
  // Rows are -1 1, 1 -1, -1 1, -1 1.
  EXPECT_EQ(normalized(Tensor::Scalar(2.0f), Floats(Shape{1}, {10}), -1),
            (F{8, 12, 12, 8, 8, 12, 8, 12}));
  EXPECT_EQ(normalized(Floats(Shape{2, 1}, {1, 3}), Floats(Shape{2}, {10, 20}), -1),
            (F{9, 21, 13, 17, 9, 21, 7, 23}));
  EXPECT_EQ(normalized(Floats(Shape{2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), Tensor(), -1),
            (F{-1, 2, 3, -4, -5, 6, -7, 8}));
  EXPECT_EQ(normalized(Floats(Shape{1, 1, 2}, {1, 2}), Tensor(), -1),
            (F{-1, 2, 1, -2, -1, 2, -1, 2}));
  // Of pages: -1 1 1 -1, and 3 5 -5 -3 by sqrt(17).
  EXPECT_EQ(normalized(Floats(Shape{2}, {1, 10}), Floats(Shape{2, 1}, {0, 100}), 1),
            (F{-1, 10, 101, 90, 1, 12, 99, 93}));
  const auto refused = RunOp("LayerNormalization", {x, Floats(Shape{3}, {1, 1, 1})});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

// Doubles are computed by the operators that it stands for, which list the axes.
TEST(LayerNormalization, RefusesAnAxisThatIsNotThere) {
  const Tensor x = Tensor::Of<double>(Shape{2, 2}, {1, 2, 3, 4});
  const Tensor scale = Tensor::Of<double>(Shape{2}, {1, 1});
  EXPECT_TRUE(RunOp("LayerNormalization", {x, scale}, With({{"axis", int64_t{-1}}})).ok());
  for (const int64_t axis : {std::numeric_limits<int64_t>::min(), int64_t{-3}, int64_t{2}}) {
    EXPECT_FALSE(RunOp("LayerNormalization", {x, scale}, With({{"axis", axis}})).ok()) << axis;
  }
}

}  // namespace
}  // namespace onnxd
