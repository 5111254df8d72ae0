#include "server/inference/classification.h"

#include <gtest/gtest.h>

#include <limits>

namespace onnxd {
namespace {

std::vector<std::string> Classes(const Tensor& values, int64_t classes) {
  const auto result = Classify(values, classes, "y");
  if (!result.ok()) return {result.status().ToString()};
  const auto elements = result->elements<std::string>();
  return {elements.begin(), elements.end()};
}

using Texts = std::vector<std::string>;

TEST(Classification, NamesTheLargestOfEachRow) {
  const Tensor rows = Tensor::Of<float>(Shape{2, 3}, {0.1f, 0.7f, 0.2f, 3, 1, 2});
  EXPECT_EQ(Classes(rows, 2), (Texts{"0.700000:1", "0.200000:2", "3.000000:0", "2.000000:2"}));
  EXPECT_EQ(Classify(rows, 2, "y")->shape(), (Shape{2, 2}));
  EXPECT_EQ(Classify(rows, 9, "y")->shape(), (Shape{2, 3}));
}

TEST(Classification, OfOneRowHasNoBatch) {
  EXPECT_EQ(Classes(Tensor::Of<int64_t>(Shape{3}, {5, -7, 6}), 1), Texts{"6:2"});
  EXPECT_EQ(Classify(Tensor::Of<int64_t>(Shape{3}, {5, -7, 6}), 1, "y")->shape(), Shape{1});
  EXPECT_EQ(Classes(Tensor::Scalar<uint8_t>(200), 3), Texts{"200:0"});
}

TEST(Classification, EqualValuesKeepTheirOrderAndNaNComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Classes(Tensor::Of<float>(Shape{4}, {nan, 1, nan, 1}), 3),
            (Texts{"1.000000:1", "1.000000:3", "nan:0"}));
}

TEST(Classification, OfNothingIsNothing) {
  EXPECT_EQ(Classes(Tensor::Of<float>(Shape{0, 4}, {}), 2), Texts{});
  EXPECT_EQ(Classes(Tensor::Of<float>(Shape{2, 0}, {}), 2), Texts{});
}

TEST(Classification, RefusesTextsAndAbsurdNumbers) {
  const Tensor numbers = Tensor::Of<float>(Shape{2}, {1, 2});
  for (const int64_t wrong : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_EQ(Classify(numbers, wrong, "y").status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(Classify(Tensor::Of<std::string>(Shape{1}, {"a"}), 1, "y").ok());
}

}  // namespace
}  // namespace onnxd
