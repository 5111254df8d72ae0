// Signals between convolutions of images: Squeeze and Unsqueeze that take each other back.
#include <gtest/gtest.h>

#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// Images of one row, as tf2onnx has signals, x: [2, 3, 1, 7]; `squeezed` reads them as [2, 3, 7].
class SqueezeEliminationTest : public testing::Test {
 protected:
  void SetUp() override {
    model_.Input("x", DataType::kFloat, {2, 3, 1, 7});
    model_.Constant("row", Ints({1}, {2}));
    model_.Constant("bias", Floats({1, 3, 1}, {1, -2, 0.5f}));
    model_.Node("Squeeze", {"x", "row"}, {"squeezed"});
  }

  void Convolve(const std::string& image, const std::string& result) {
    model_.Constant(result + "_weights", Ramp(Shape{3, 3, 1, 3}, 0.1f));
    model_.Node("Conv", {image, result + "_weights"}, {result});
  }

  std::string AfterPass() {
    TestModel copy = model_;
    const std::string ops =
        After(model_, {SqueezeElimination(), IdentityElimination(), DeadCodeElimination()});
    ExpectSameResults(copy, {Ramp(Shape{2, 3, 1, 7}, 0.5f)});
    return ops;
  }

  TestModel model_{13};
};

TEST_F(SqueezeEliminationTest, ConvolutionsMeetTheirBiasesAndActivations) {
  Convolve("x", "a");
  model_.Node("Squeeze", {"a", "row"}, {"b"}).Node("Add", {"b", "bias"}, {"c"});
  model_.Node("Relu", {"c"}, {"d"}).Node("Unsqueeze", {"d", "row"}, {"e"});
  Convolve("e", "f");
  model_.Node("Squeeze", {"f", "row"}, {"y"}).Output("y");
  TestModel copy = model_;
  EXPECT_EQ(AfterPass(), "Conv Add Relu Conv Squeeze");
  EXPECT_EQ(After(copy, StandardPasses()), "FusedConv Conv Squeeze");
}

TEST_F(SqueezeEliminationTest, MovesBehindWhatReadsSignalsAlone) {
  Attributes last;
  last.Set("axis", int64_t{-1});
  model_.Node("Sigmoid", {"squeezed"}, {"a"}).Node("Mul", {"a", "squeezed"}, {"b"});
  model_.Node("Concat", {"b", "a"}, {"c"}, last).Node("Unsqueeze", {"c", "row"}, {"y"}).Output("y");
  EXPECT_EQ(AfterPass(), "Sigmoid Mul Concat");
  EXPECT_EQ(model_.graph().nodes[2].attributes.Int("axis", 0), 3);
}

TEST_F(SqueezeEliminationTest, NormalizesAndPadsImages) {
  model_.Constant("scale", Floats({3}, {1, 2, 3})).Constant("mean", Floats({3}, {-1, 0, 1}));
  model_.Node("BatchNormalization", {"squeezed", "scale", "mean", "mean", "scale"}, {"a"});
  model_.Constant("pads", Ints({6}, {0, 0, 4, 0, 1, 2}));
  model_.Node("Pad", {"a", "pads"}, {"b"}).Node("Unsqueeze", {"b", "row"}, {"y"}).Output("y");
  EXPECT_EQ(AfterPass(), "BatchNormalization Pad");
  EXPECT_EQ(ToString(*model_.graph().value(model_.graph().outputs[0]).type.shape), "[2, 4, 1, 13]");
}

TEST_F(SqueezeEliminationTest, ConstantsBroadcastAsBefore) {
  model_.Constant("number", Floats({}, {2})).Constant("column", Floats({7}, {1, 2, 3, 4, 5, 6, 7}));
  model_.Constant("plane", Ramp(Shape{3, 7}, 0.2f)).Constant("whole", Ramp(Shape{2, 3, 7}, 0.3f));
  std::string signal = "squeezed";
  for (const char* constant : {"number", "column", "plane", "whole"}) {
    const std::string next = std::string("after_") + constant;
    model_.Node("Sub", {constant, signal}, {next});
    signal = next;
  }
  model_.Node("Unsqueeze", {signal, "row"}, {"y"}).Output("y");
  EXPECT_EQ(AfterPass(), "Sub Sub Sub Sub");
}

TEST_F(SqueezeEliminationTest, WhatOthersReadStaysASignal) {
  model_.Node("Relu", {"squeezed"}, {"a"}).Output("a");
  model_.Node("Unsqueeze", {"a", "row"}, {"b"}).Node("Neg", {"b"}, {"y"}).Output("y");
  EXPECT_EQ(AfterPass(), "Relu Squeeze Neg");
}

TEST_F(SqueezeEliminationTest, AnUnsqueezeElsewhereStays) {
  model_.Constant("front", Ints({1}, {0})).Node("Relu", {"squeezed"}, {"a"});
  model_.Node("Unsqueeze", {"a", "front"}, {"y"}).Output("y");
  EXPECT_EQ(AfterPass(), "Relu Squeeze Unsqueeze");
}

TEST_F(SqueezeEliminationTest, LeavesWhatIsNotSqueezedAlike) {
  model_.Input("other", DataType::kFloat, {2, 3, 7});
  model_.Node("Add", {"squeezed", "other"}, {"y"}).Output("y");
  EXPECT_EQ(After(model_, SqueezeElimination()), "Squeeze Add");
  TestModel two(13);
  two.Input("a", DataType::kFloat, {2, 1, 3, 7}).Input("b", DataType::kFloat, {2, 3, 1, 7});
  two.Constant("first", Ints({1}, {1})).Constant("second", Ints({1}, {2}));
  two.Node("Squeeze", {"a", "first"}, {"c"}).Node("Squeeze", {"b", "second"}, {"d"});
  two.Node("Add", {"c", "d"}, {"y"}).Output("y");
  EXPECT_EQ(After(two, SqueezeElimination()), "Squeeze Squeeze Add");
  TestModel deeper(13);
  deeper.Input("a", DataType::kFloat, {3, 4, 1, 7}).Input("b", DataType::kFloat, {2, 3, 1, 4, 7});
  deeper.Constant("axis", Ints({1}, {2}));
  deeper.Node("Squeeze", {"a", "axis"}, {"c"}).Node("Squeeze", {"b", "axis"}, {"d"});
  deeper.Node("Add", {"c", "d"}, {"y"}).Output("y");
  EXPECT_EQ(After(deeper, SqueezeElimination()), "Squeeze Squeeze Add");
}

TEST(SqueezeElimination, LeavesExtentsThatMayNotBeOneMatricesAndIntegers) {
  const auto after = [](DataType type, SymbolicShape shape) {
    TestModel model(13);
    model.Input("x", type, std::move(shape)).Constant("row", Ints({1}, {2}));
    model.Node("Squeeze", {"x", "row"}, {"a"}).Node("Neg", {"a"}, {"b"});
    model.Node("Unsqueeze", {"b", "row"}, {"y"}).Output("y");
    return After(model, SqueezeElimination());
  };
  EXPECT_EQ(after(DataType::kFloat, {2, 3, 1, 7}), "Squeeze Neg Squeeze Identity");
  EXPECT_EQ(after(DataType::kFloat, {2, 3, Dimension::Symbol("n"), 7}), "Squeeze Neg Unsqueeze");
  EXPECT_EQ(after(DataType::kFloat, {2, 3, 1}), "Squeeze Neg Unsqueeze");
  EXPECT_EQ(after(DataType::kInt64, {2, 3, 1, 7}), "Squeeze Neg Unsqueeze");
}

TEST(SqueezeElimination, TakesAxesAndPadsFromAttributesOfOldModels) {
  Attributes row, pads;
  row.Set("axes", std::vector<int64_t>{2});
  pads.Set("pads", std::vector<int64_t>{0, 0, 1, 0, 0, 0});
  TestModel model(9);
  model.Input("x", DataType::kFloat, {2, 3, 1, 7}).Node("Squeeze", {"x"}, {"a"}, row);
  model.Node("Pad", {"a"}, {"b"}, pads).Node("Tanh", {"b"}, {"c"}).Output("c");
  model.Node("Unsqueeze", {"c"}, {"y"}, row).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {SqueezeElimination(), DeadCodeElimination()}),
            "Pad Tanh Squeeze Identity");
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 1, 7}, 0.5f)});
}

}  // namespace
}  // namespace onnxd
