// Which products stay float: the search, on sessions whose error is known.
#include "tools/precision_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

Tensor Row(std::vector<float> elements) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, Shape{static_cast<int64_t>(elements.size())});
  std::copy(elements.begin(), elements.end(), tensor.mutable_data<float>());
  return tensor;
}

TEST(LargestError, IsAShareOfTheOutputsRange) {
  EXPECT_DOUBLE_EQ(LargestError({Row({1, -4, 2})}, {Row({1, -4, 2})}), 0);
  EXPECT_DOUBLE_EQ(LargestError({Row({1, -4, 2})}, {Row({2, -4, 2})}), 0.25);
  EXPECT_DOUBLE_EQ(LargestError({Row({1}), Row({2})}, {Row({1}), Row({1})}), 0.5);
}

TEST(LargestError, IsInfiniteWhereNumbersAreLost) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(LargestError({Row({1, 2})}, {Row({1, infinity})})));
  EXPECT_TRUE(std::isinf(LargestError({Row({1, NAN})}, {Row({1, 2})})));
  EXPECT_TRUE(std::isinf(LargestError({Row({1, 2})}, {Row({1})})));
  EXPECT_TRUE(std::isinf(LargestError({Row({0})}, {Row({1})})));
  EXPECT_TRUE(std::isinf(LargestError({Row({1, infinity})}, {Row({1, NAN})})));
  EXPECT_TRUE(std::isinf(LargestError({Row({1, infinity})}, {Row({1, -infinity})})));
  EXPECT_DOUBLE_EQ(LargestError({Row({1, NAN, infinity})}, {Row({1, NAN, infinity})}), 0);
}

TEST(LargestError, CountsOutputsOfOtherFloatTypes) {
  const auto doubles = [](double number) {
    Tensor tensor = *Tensor::Create(DataType::kDouble, Shape{1});
    *tensor.mutable_data<double>() = number;
    return tensor;
  };
  EXPECT_DOUBLE_EQ(LargestError({doubles(4)}, {doubles(3)}), 0.25);
}

// y = 1 + what the layers add that are not in float.
class ChooseFloatLayersTest : public testing::Test {
 protected:
  Result<PrecisionChoice> Choose(double tolerance) {
    std::vector<std::string> layers;
    for (const auto& [name, error] : errors_) layers.push_back(name);
    const SessionMaker make = [&](Precision precision, const std::set<std::string>& float_layers)
        -> Result<std::unique_ptr<InferenceSession>> {
      ++sessions_;
      float sum = 1;
      for (const auto& [name, error] : errors_) {
        if (precision != Precision::kFloat32 && !float_layers.contains(name)) sum += error;
      }
      TestModel model;
      model.Input("x", DataType::kFloat, {1}).Constant("c", Row({sum}));
      model.Node("Mul", {"x", "c"}, {"y"}).Output("y");
      return model.Load();
    };
    return ChooseFloatLayers(layers, make, Precision::kFloat16, {{Row({1})}, {Row({2})}},
                             tolerance);
  }

  std::vector<std::pair<std::string, float>> errors_ = {{"a", 0.001f}, {"b", 0.001f}, {"c", 0.5f},
                                                        {"d", 0.001f}, {"e", 0.001f}, {"f", 0.001f},
                                                        {"g", 0.001f}, {"h", 0.4f}};
  int sessions_ = 0;
};

TEST_F(ChooseFloatLayersTest, KeepsNoneWhereAllAreNear) {
  const auto choice = Choose(1);
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_TRUE(choice->float_layers.empty());
  EXPECT_EQ(choice->layers, 8U);
  EXPECT_NEAR(choice->largest_error, 0.906, 1e-5);
  EXPECT_EQ(sessions_, 2);
}

TEST_F(ChooseFloatLayersTest, KeepsThoseThatLeadTooFar) {
  const auto choice = Choose(0.01);
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_EQ(choice->float_layers, (std::set<std::string>{"c", "h"}));
  EXPECT_NEAR(choice->largest_error, 0.006, 1e-5);
  EXPECT_NEAR(choice->all_narrow_error, 0.906, 1e-5);
}

TEST_F(ChooseFloatLayersTest, KeepsAsManyAsTheirErrorsAddUp) {
  const auto choice = Choose(0.0035);
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_EQ(choice->float_layers, (std::set<std::string>{"c", "e", "f", "g", "h"}));
  EXPECT_LE(choice->largest_error, 0.0035);
}

TEST_F(ChooseFloatLayersTest, SaysWhereFloatIsNotNearEither) {
  errors_.clear();
  errors_.emplace_back("a", 0.5f);
  int calls = 0;
  const SessionMaker make = [&](Precision, const std::set<std::string>&) {
    TestModel model;
    model.Input("x", DataType::kFloat, {1});
    model.Constant("c", Row({static_cast<float>(++calls)}));
    model.Node("Mul", {"x", "c"}, {"y"}).Output("y");
    return model.Load();
  };
  const auto choice = ChooseFloatLayers({"a"}, make, Precision::kFloat16, {{Row({1})}}, 0.1);
  EXPECT_EQ(choice.status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace onnxd
