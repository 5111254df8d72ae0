#include "server/models/padding_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/test_model.h"

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TensorSignature Signature(const std::string& name, DataType type, SymbolicShape shape) {
  return {name, ValueType::TensorOf(type, std::move(shape))};
}

const Dimension kLength = Dimension::Symbol("length"), kBatch = Dimension::Symbol("batch");

// ids and their mask, and pairs of positions; per position, and of the whole.
const std::vector<TensorSignature> kInputs = {
    Signature("ids", DataType::kInt64, {kBatch, kLength}),
    Signature("mask", DataType::kFloat, {kBatch, kLength}),
    Signature("pairs", DataType::kBool, {kLength, kLength})};
const std::vector<TensorSignature> kOutputs = {
    Signature("each", DataType::kFloat, {kBatch, kLength, 2}),
    Signature("whole", DataType::kFloat, {kBatch, 3})};

std::shared_ptr<const PaddingPlan> Plan(std::vector<int64_t> sizes = {4}) {
  PaddedDimension dimension{
      "length", std::move(sizes), {{"ids", 7}, {"mask", 0}, {"pairs", 1}}, "mask"};
  return *MakePaddingPlan({dimension}, kInputs, kOutputs);
}

TEST(PaddingPlan, FillsBehindTheOwnElementsOfEachRow) {
  std::vector<Value> inputs = {Ints({2, 3}, {1, 2, 3, 4, 5, 6}), Floats({2, 3}, {1, 1, 1, 1, 1, 1}),
                               Tensor::Of<bool>(Shape{3, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0})};
  const auto padded = Pad(*Plan(), inputs);
  ASSERT_TRUE(padded.ok()) << padded.status().ToString();
  EXPECT_THAT(inputs[0].tensor().elements<int64_t>(), ElementsAre(1, 2, 3, 7, 4, 5, 6, 7));
  EXPECT_THAT(inputs[1].tensor().elements<float>(), ElementsAre(1, 1, 1, 0, 1, 1, 1, 0));
  EXPECT_EQ(inputs[2].tensor().shape(), Shape({4, 4}));
  EXPECT_THAT(inputs[2].tensor().elements<bool>(),
              ElementsAre(0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1));
  EXPECT_EQ(padded->elements, 2 + 2 + 7);
}

TEST(PaddingPlan, TakesTheFillingFromTheOutputsAgain) {
  std::vector<Value> outputs = {Floats({1, 4, 2}, {1, 2, 3, 4, 5, 6, 0, 0}),
                                Floats({1, 3}, {1, 2, 3})};
  ASSERT_TRUE(Crop(*Plan(), {{3}, 1}, outputs).ok());
  EXPECT_EQ(outputs[0].tensor().shape(), Shape({1, 3, 2}));
  EXPECT_THAT(outputs[0].tensor().elements<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(outputs[1].tensor().shape(), Shape({1, 3}));
}

TEST(PaddingPlan, WhatHasASizeOrIsLongerStays) {
  for (const int64_t length : {4, 5}) {
    std::vector<Value> inputs = {Tensor::Create(DataType::kInt64, {1, length}).value(),
                                 Tensor::Create(DataType::kFloat, {1, length}).value(),
                                 Tensor::Create(DataType::kBool, {length, length}).value()};
    const auto padded = Pad(*Plan(), inputs);
    EXPECT_EQ(padded->lengths, std::vector<int64_t>{0});
    EXPECT_EQ(inputs[0].tensor().shape(), Shape({1, length}));
  }
}

TEST(PaddingPlan, InputsThatDisagreeAreLeftToTheModel) {
  std::vector<Value> inputs = {Ints({1, 3}, {1, 2, 3}), Floats({1, 2}, {1, 1}),
                               Tensor::Create(DataType::kBool, {3, 3}).value()};
  EXPECT_EQ(Pad(*Plan(), inputs)->lengths, std::vector<int64_t>{0});
}

TEST(PaddingPlan, AMaskThatIsAbsentIsOnesAsTheOthersAre) {
  std::vector<Value> inputs(3);
  inputs[0] = Ints({2, 3}, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(AddMasks(*Plan(), kInputs, inputs).ok());
  EXPECT_EQ(inputs[1].tensor().shape(), Shape({2, 3}));
  EXPECT_THAT(inputs[1].tensor().elements<float>(), testing::Each(1));
  EXPECT_TRUE(inputs[2].absent());
}

TEST(PaddingPlan, OfTextsThereIsNone) {
  const auto plan = MakePaddingPlan({{"length", {4}, {{"ids", 0}}, ""}},
                                    {Signature("ids", DataType::kString, {kBatch, kLength})}, {});
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("input 'ids' has no numbers"));
}

TEST(PaddingPlan, AModelIsAskedWhetherItChangesNothing) {
  for (const char* op : {"ReduceSum", "ReduceMean"}) {
    TestModel model(13);
    model.Input("x", DataType::kFloat, {kBatch, kLength});
    if (std::string(op) == "ReduceSum") {
      model.Constant("axes", Ints({1}, {1}));
      model.Node(op, {"x", "axes"}, {"y"});
    } else {
      Attributes attributes;
      attributes.Set("axes", std::vector<int64_t>{1});
      model.Node(op, {"x"}, {"y"}, attributes);
    }
    model.Output("y");
    const auto session = model.Load();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const auto plan = MakePaddingPlan({{"length", {1, 4}, {{"x", 0}}, ""}}, (*session)->inputs(),
                                      (*session)->outputs());
    ASSERT_TRUE(plan.ok());
    const Status same = CheckPadding(**plan, **session, nullptr);
    EXPECT_EQ(same.ok(), std::string(op) == "ReduceSum") << same.ToString();
  }
}

}  // namespace
}  // namespace onnxd
