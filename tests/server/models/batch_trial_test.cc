#include "server/models/batch_trial.h"

#include <gtest/gtest.h>

#include "tests/support/test_model.h"

namespace onnxd {
namespace {

const SymbolicShape kRows = {Dimension::Symbol("batch"), 4};

// What speaks against joining rows, the graph's word first.
std::string WhyAlone(const TestModel& model) {
  const auto session = model.Load();
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  if (!(*session)->info().rows_depend.empty()) return (*session)->info().rows_depend;
  const std::atomic<bool> stopping{false};
  return TryBatch(**session, stopping);
}

TEST(BatchTrial, AllowsAModelThatComputesRowByRow) {
  TestModel model;
  model.Input("x", DataType::kFloat, kRows)
      .Constant("w", Tensor::Of<float>(Shape{4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
  model.Node("MatMul", {"x", "w"}, {"a"}).Node("Softmax", {"a"}, {"y"}).Output("y");
  EXPECT_EQ(WhyAlone(model), "");
}

TEST(BatchTrial, SeesAFixedFirstDimension) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 4}).Node("Relu", {"x"}, {"y"}).Output("y");
  EXPECT_EQ(WhyAlone(model), "the first dimension of 'x' is 2");
}

TEST(BatchTrial, SeesInputsOfOtherFirstDimensions) {
  TestModel model;
  model.Input("x", DataType::kFloat, kRows)
      .Input("z", DataType::kFloat, {Dimension::Symbol("n"), 4});
  model.Node("Relu", {"x"}, {"y"}).Node("Relu", {"z"}, {"v"}).Output("y").Output("v");
  EXPECT_EQ(WhyAlone(model), "the first dimension of 'z' is 'n', of others 'batch'");
}

TEST(BatchTrial, SeesAReductionOverTheRows) {
  TestModel model;
  Attributes attributes;
  attributes.Set("axis", int64_t{0});
  model.Input("x", DataType::kFloat, kRows).Node("Softmax", {"x"}, {"y"}, attributes).Output("y");
  EXPECT_NE(WhyAlone(model).find("computes over the first dimension"), std::string::npos);
}

TEST(BatchTrial, SeesAReductionOverEverything) {
  TestModel model;
  model.Input("x", DataType::kFloat, kRows);
  model.Node("ReduceMax", {"x"}, {"m"}).Node("Sub", {"x", "m"}, {"y"}).Output("y");
  EXPECT_NE(WhyAlone(model).find("computes over the first dimension"), std::string::npos);
}

TEST(BatchTrial, AllowsAReductionOverOtherAxes) {
  TestModel model;
  Attributes attributes;
  attributes.Set("keepdims", int64_t{1});
  model.Input("x", DataType::kFloat, kRows);
  model.Constant("axes", Tensor::Of<int64_t>(Shape{1}, {-1}));
  model.Node("ReduceSum", {"x", "axes"}, {"y"}, attributes).Output("y");
  EXPECT_EQ(WhyAlone(model), "");
}

TEST(BatchTrial, SeesQuantizationOverTheWholeBatch) {
  TestModel model;
  model.Input("x", DataType::kFloat, kRows);
  model.Node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"});
  model.Node("DequantizeLinear", {"q", "s", "z"}, {"y"}).Output("y");
  EXPECT_NE(WhyAlone(model).find("looks at all rows"), std::string::npos);
}

// Nothing in the list of operators, but rows meet: only running it shows that.
TEST(BatchTrial, TriesWhatTheGraphDoesNotSay) {
  TestModel model;
  Attributes reversed;
  model.Input("x", DataType::kFloat, kRows);
  model.Constant("starts", Tensor::Of<int64_t>(Shape{1}, {-1}));
  model.Constant("ends", Tensor::Of<int64_t>(Shape{1}, {-1000}));
  model.Constant("axes", Tensor::Of<int64_t>(Shape{1}, {0}));
  model.Constant("steps", Tensor::Of<int64_t>(Shape{1}, {-1}));
  model.Node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"r"});
  model.Node("Add", {"x", "r"}, {"y"}).Output("y");
  const std::string why = WhyAlone(model);
  EXPECT_FALSE(why.empty());
}

// Rows meet in the last bits, as sums of 16 bits do that kernels for more rows order otherwise.
std::string WhyAloneWithLastBits(DataType type) {
  TestModel model;
  Attributes to;
  to.Set("to", static_cast<int64_t>(type));
  model.Input("x", DataType::kFloat, kRows);
  model.Constant("starts", Tensor::Of<int64_t>(Shape{1}, {-1}));
  model.Constant("ends", Tensor::Of<int64_t>(Shape{1}, {-1000}));
  model.Constant("axes", Tensor::Of<int64_t>(Shape{1}, {0}));
  model.Constant("steps", Tensor::Of<int64_t>(Shape{1}, {-1}));
  model.Constant("little", Tensor::Scalar(0.002f));
  model.Node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"r"});
  model.Node("Mul", {"r", "little"}, {"s"}).Node("Add", {"x", "s"}, {"z"});
  model.Node("Cast", {"z"}, {"y"}, to).Output("y");
  const auto session = model.Load();
  const std::atomic<bool> stopping{false};
  return session.ok() ? TryBatch(**session, stopping) : session.status().ToString();
}

TEST(BatchTrial, AllowsWhatSixteenBitsRound) {
  EXPECT_EQ(WhyAloneWithLastBits(DataType::kFloat16), "");
  EXPECT_EQ(WhyAloneWithLastBits(DataType::kBfloat16), "");
  EXPECT_NE(WhyAloneWithLastBits(DataType::kFloat).find("differs beside others"),
            std::string::npos);
}

TEST(BatchTrial, StopsWhenTold) {
  TestModel model;
  model.Input("x", DataType::kFloat, kRows).Node("Relu", {"x"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok());
  const std::atomic<bool> stopping{true};
  EXPECT_NE(TryBatch(**session, stopping).find("CANCELLED"), std::string::npos);
}

}  // namespace
}  // namespace onnxd
