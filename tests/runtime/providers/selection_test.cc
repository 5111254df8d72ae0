// Kernels of the CPU provider that order, select, add up along rows or replace single elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// The first `counts` of x, a row; NaN is the largest.
void CheckTopK(const Tensor& x, std::initializer_list<int64_t> counts) {
  const int64_t extent = x.ElementCount();
  for (const bool largest : {false, true}) {
    I order(static_cast<size_t>(extent));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const float p = x.data<float>()[a], q = x.data<float>()[b];
      if (std::isnan(p) || std::isnan(q)) return largest ? !std::isnan(q) : !std::isnan(p);
      return largest ? p > q : p < q;
    });
    for (const int64_t count : counts) {
      const auto got = RunOp("TopK", {x, Ints(Shape{1}, {count})},
                             With({{"largest", int64_t{largest}}}), {.outputs = 2});
      EXPECT_EQ(Elements<int64_t>(got, 1), I(order.begin(), order.begin() + count))
          << count << " of " << extent << ", largest " << largest;
    }
  }
}

TEST(TopK, TakesFewOfManyInOrder) {
  for (const int64_t extent : {500, 512, 1000, 3001}) {
    Tensor x = Numbers(Shape{1, extent});  // of 211 numbers, so that many are equal
    CheckTopK(x, {0, 1, 5, 16, 17, 32, 33, 200, 500});
    for (const size_t at : {70, 123, 321}) x.mutable_data<float>()[at] = kNan;
    CheckTopK(x, {1, 5, 16, 33});
    x.mutable_data<float>()[2] = kNan;
    CheckTopK(x, {1, 5, 16, 33});
  }
}

TEST(TopK, TakesFewOfManyThatAreDistinct) {
  Tensor x = *Tensor::Create(DataType::kFloat, Shape{1, 2051});
  for (int64_t i = 0; i < 2051; ++i) {
    x.mutable_data<float>()[i] = static_cast<float>(i * 1217 % 2053) - 1000;
  }
  CheckTopK(x, {1, 2, 7, 16, 20});
}

// The first of equals comes first, zeros of both signs are equal, and NaN is the largest.
TEST(TopK, OrdersAllOfARow) {
  for (const int64_t extent : {1, 2, 15, 16, 17, 50, 255, 256, 257, 2000}) {
    Tensor x = Numbers(Shape{3, extent});
    for (int64_t i = 0; i < 3 * extent; i += 5) {
      const float special[] = {kNan, -kInfinity, kInfinity, 0.0f, -0.0f, -kNan, 1.5f};
      x.mutable_data<float>()[i] = special[static_cast<size_t>(i / 5 % 7)];
    }
    for (const bool largest : {false, true}) {
      I wanted;
      for (int64_t row = 0; row < 3; ++row) {
        I order(static_cast<size_t>(extent));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          const float p = x.data<float>()[row * extent + a], q = x.data<float>()[row * extent + b];
          if (std::isnan(p) || std::isnan(q)) return largest ? !std::isnan(q) : !std::isnan(p);
          return largest ? p > q : p < q;
        });
        wanted.insert(wanted.end(), order.begin(), order.end());
      }
      const auto got = RunOp("TopK", {x, Ints(Shape{1}, {extent})},
                             With({{"largest", int64_t{largest}}}), {.outputs = 2});
      EXPECT_EQ(Elements<int64_t>(got, 1), wanted) << extent << ", largest " << largest;
    }
  }
}

// Any bits, NaN and denormal numbers among them, in three columns; the first numbers of each.
TEST(TopK, OrdersManyNumbersOfAnyKind) {
  for (const int64_t extent : {300, 700, 5000}) {
    Tensor x = *Tensor::Create(DataType::kFloat, Shape{extent, 3});
    uint32_t state = 1;
    for (int64_t i = 0; i < x.ElementCount(); ++i) {
      state = state * 1664525u + 1013904223u;
      const uint32_t bits = state ^ state >> 15;
      x.mutable_data<float>()[i] =
          i % 3 == 2 ? static_cast<float>(bits % 5) : std::bit_cast<float>(bits);
    }
    for (const int64_t count : {extent / 4 + 1, extent - 1, extent}) {
      I wanted(static_cast<size_t>(3 * count));
      for (int64_t column = 0; column < 3; ++column) {
        I order(static_cast<size_t>(extent));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          const float p = x.data<float>()[a * 3 + column], q = x.data<float>()[b * 3 + column];
          return std::isnan(p) ? !std::isnan(q) : p > q;
        });
        for (int64_t i = 0; i < count; ++i) {
          wanted[static_cast<size_t>(i * 3 + column)] = order[static_cast<size_t>(i)];
        }
      }
      const auto got =
          RunOp("TopK", {x, Ints(Shape{1}, {count})}, With({{"axis", int64_t{0}}}), {.outputs = 2});
      EXPECT_EQ(Elements<int64_t>(got, 1), wanted) << count << " of " << extent;
    }
  }
}

TEST(CumSum, OfManyRowsIsThatOfEach) {
  const int64_t rows = 19, extent = 11;
  const Tensor x = Numbers(Shape{rows, extent});
  for (const int64_t exclusive : {0, 1}) {
    for (const int64_t reverse : {0, 1}) {
      const auto attributes = With({{"exclusive", exclusive}, {"reverse", reverse}});
      const auto got = Elements(RunOp("CumSum", {x, Tensor::Scalar(int64_t{1})}, attributes));
      for (int64_t row = 0; row < rows; ++row) {
        float sum = 0;
        for (int64_t i = 0; i < extent; ++i) {
          const int64_t at = row * extent + (reverse != 0 ? extent - 1 - i : i);
          const float next = sum + x.data<float>()[at];
          EXPECT_EQ(got[static_cast<size_t>(at)], exclusive != 0 ? sum : next) << at;
          sum = next;
        }
      }
    }
  }
}

TEST(NonZero, SaysWhereOnAllAxes) {
  for (const Shape& shape : {Shape{1}, Shape{37}, Shape{3, 5}, Shape{2, 3, 4}, Shape{2, 0, 4}}) {
    Tensor x = Numbers(shape);
    I wanted;
    for (int64_t i = 0; i < shape.ElementCount(); ++i) {
      float& element = x.mutable_data<float>()[i];
      if (i % 3 == 0) element = i % 2 == 0 ? 0.0f : -0.0f;
      if (i % 7 == 1) element = kNan;
    }
    for (int axis = 0; axis < shape.rank(); ++axis) {
      for (int64_t i = 0; i < shape.ElementCount(); ++i) {
        const int64_t below = shape.ElementCount(axis + 1, shape.rank());
        if (x.data<float>()[i] != 0) wanted.push_back(i / below % shape[axis]);
      }
    }
    EXPECT_EQ(Elements<int64_t>(RunOp("NonZero", {x})), wanted) << shape.ToString();
  }
}

TEST(Imputer, ReplacesWhatIsMissingByColumn) {
  const Tensor x = Floats(Shape{2, 3}, {1, kNan, 3, kNan, 5, 3});
  const auto impute = [&](float missing, std::vector<float> imputed) {
    const auto attributes =
        With({{"replaced_value_float", missing}, {"imputed_value_floats", std::move(imputed)}});
    return Elements(RunOp("Imputer", {x}, attributes, {.domain = "ai.onnx.ml"}));
  };
  EXPECT_EQ(impute(kNan, {7, 8, 9}), (std::vector<float>{1, 8, 3, 7, 5, 3}));
  EXPECT_EQ(impute(kNan, {7}), (std::vector<float>{1, 7, 3, 7, 5, 3}));
  const auto threes = impute(3, {7, 8, 9});
  EXPECT_EQ(threes[2], 9);
  EXPECT_TRUE(std::isnan(threes[1]));
  const auto refused =
      RunOp("Imputer", {x}, With({{"imputed_value_floats", std::vector<float>{1, 2}}}),
            {.domain = "ai.onnx.ml"});
  EXPECT_FALSE(refused.ok());
}

TEST(Binarizer, TellsWhatIsAboveItsThreshold) {
  const Tensor x = Floats(Shape{5}, {-1, 0.5f, 0.25f, kNan, kInfinity});
  const auto got =
      Elements(RunOp("Binarizer", {x}, With({{"threshold", 0.25f}}), {.domain = "ai.onnx.ml"}));
  EXPECT_EQ(got, (std::vector<float>{0, 1, 0, 0, 1}));
}

}  // namespace
}  // namespace onnxd
