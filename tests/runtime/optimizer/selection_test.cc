// Choices written as products with conditions.
#include <gtest/gtest.h>

#include "runtime/optimizer/pass_manager.h"
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// condition * a + not condition * b, as tf2onnx writes it, of integers or floats.
class SelectionTest : public testing::Test {
 protected:
  void Compose(DataType type, const std::string& other_condition, bool other_first) {
    model_ = TestModel(13);
    Attributes to;
    to.Set("to", static_cast<int64_t>(type));
    model_.Input("a", type, {2, 3}).Input("b", type, {3});
    model_.Input("condition", DataType::kBool, {2, 1}).Input("other", DataType::kBool, {2, 1});
    model_.Node("Not", {"condition"}, {"opposite"});
    model_.Node("Cast", {"condition"}, {"one"}, to).Node("Cast", {other_condition}, {"zero"}, to);
    model_.Node("Mul", {"one", "a"}, {"x"}).Node("Mul", {"b", "zero"}, {"y"});
    model_.Node("Add", {other_first ? "y" : "x", other_first ? "x" : "y"}, {"z"}).Output("z");
  }

  std::string AfterPass() { return After(model_, {SelectionFusion(), DeadCodeElimination()}); }

  TestModel model_;
};

Tensor Conditions(bool first) {
  Tensor tensor = Tensor::Create(DataType::kBool, Shape{2, 1}).value();
  tensor.mutable_data<bool>()[0] = first;
  tensor.mutable_data<bool>()[1] = !first;
  return tensor;
}

TEST_F(SelectionTest, ChoosesFloats) {
  for (const bool other_first : {false, true}) {
    Compose(DataType::kFloat, "opposite", other_first);
    const TestModel copy = model_;
    EXPECT_EQ(AfterPass(), "Where");
    ExpectSameResults(copy, {Ramp(Shape{2, 3}, 0.5f), Ramp(Shape{3}, -2), Conditions(other_first),
                             Conditions(false)});
  }
}

TEST_F(SelectionTest, ChoosesIntegers) {
  Compose(DataType::kInt64, "opposite", false);
  const TestModel copy = model_;
  EXPECT_EQ(AfterPass(), "Where");
  ExpectSameResults(copy, {Ints({2, 3}, {1, 2, 3, 4, 5, 6}), Ints({3}, {-7, -8, -9}),
                           Conditions(true), Conditions(true)});
}

TEST_F(SelectionTest, LeavesSumsUnderOtherConditions) {
  for (const char* other : {"other", "condition"}) {
    Compose(DataType::kFloat, other, false);
    EXPECT_TRUE(AfterPass().ends_with("Cast Cast Mul Mul Add"));
  }
}

TEST_F(SelectionTest, NeedsWhere) {
  for (const int64_t opset : {8, 9}) {
    Compose(DataType::kFloat, "opposite", false);
    ASSERT_TRUE(InferGraph(model_.graph()).ok());
    PassContext context;
    context.opset = opset;
    ASSERT_TRUE(
        RunPasses({SelectionFusion()}, OptimizationLevel::kAll, model_.graph(), context).ok());
    EXPECT_EQ(model_.graph().nodes.back().op_type, opset == 8 ? "Add" : "Where");
  }
}

// Keras's causal mask: whatever is true has the shape of the scores.
TestModel Repeated(const SymbolicShape& x) {
  TestModel model(13);
  Tensor yes = *Tensor::Create(DataType::kBool, Shape{1});
  yes.mutable_data<bool>()[0] = true;
  model.Input("x", DataType::kFloat, x).Input("m", DataType::kBool, {2, 3});
  model.Input("like", DataType::kFloat, {Dimension::Symbol("batch"), 2, 3});
  model.Constant("yes", yes).Constant("low", Tensor::Scalar(-3.0f));
  model.Node("Shape", {"like"}, {"shape"}).Node("Expand", {"yes", "shape"}, {"all"});
  model.Node("And", {"all", "m"}, {"condition"});
  return model.Node("Where", {"condition", "x", "low"}, {"y"}).Output("y");
}

TEST(Selection, RepeatsNoConditionsBesideWholeOperands) {
  TestModel model = Repeated({Dimension::Symbol("batch"), 2, 3});
  const TestModel copy = model;
  EXPECT_EQ(After(model, {SelectionFusion(), DeadCodeElimination()}), "Where");
  Tensor mask = *Tensor::Create(DataType::kBool, Shape{2, 3});
  for (int i = 0; i < 6; ++i) mask.mutable_data<bool>()[i] = i % 2 == 0;
  const Tensor x = Ramp(Shape{4, 2, 3}, 0.5f);
  ExpectSameResults(copy, {x, mask, x});
}

TEST(Selection, RepeatsConditionsThatMakeTheResultLarger) {
  TestModel model = Repeated({1, 2, 3});
  EXPECT_EQ(After(model, {SelectionFusion(), DeadCodeElimination()}), "Shape Expand And Where");
}

}  // namespace
}  // namespace onnxd
