// float_computation: models of 16-bit floats compute in float, and 16 bits stay where they are
// cheaper.
#include <gtest/gtest.h>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"
#include "runtime/tensor/convert.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

Tensor Narrowed(DataType type, const Tensor& floats) {
  return std::move(Converted(floats, type)).value();
}

Attributes To(DataType type) {
  Attributes attributes;
  attributes.Set("to", static_cast<int64_t>(type));
  return attributes;
}

class FloatComputation : public testing::TestWithParam<DataType> {
 protected:
  static std::string AfterPass(TestModel& model) {
    return After(model,
                 {ProviderPass("float_computation"), IdentityElimination(), DeadCodeElimination()});
  }

  // Floats come in and go out, so that results can be compared; between them lies `type`.
  static TestModel Begin() {
    TestModel model;
    model.Input("floats", DataType::kFloat, {Dimension::Symbol("batch"), 8});
    model.Node("Cast", {"floats"}, {"x"}, To(GetParam()));
    return model;
  }
  static TestModel& End(TestModel& model) {
    return model.Node("Cast", {"y"}, {"result"}, To(DataType::kFloat)).Output("result");
  }
};

TEST_P(FloatComputation, TakesProductsAndWhatFollowsThem) {
  TestModel model = Begin();
  model.Constant("w", Narrowed(GetParam(), Ramp(Shape{8, 6}, 0.25f)));
  model.Constant("b", Narrowed(GetParam(), Ramp(Shape{6}, 0.5f)));
  model.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"s"}).Node("Relu", {"s"}, {"y"});
  TestModel copy = End(model);
  EXPECT_EQ(AfterPass(model), "MatMul Add Relu");
  for (const Node& node : model.graph().nodes) {
    EXPECT_TRUE(IsFloat(model.graph(), node.outputs[0])) << node.op_type;
  }
  ExpectSameResults(copy, {Ramp(Shape{3, 8}, 0.125f)}, 1, 0.02f);
}

TEST_P(FloatComputation, RoundsAtTheGraphsOwnBordersAlone) {
  TestModel model;
  model.Input("x", GetParam(), {4}).Node("Exp", {"x"}, {"e"}).Node("Log", {"e"}, {"y"});
  model.Output("y");
  EXPECT_EQ(AfterPass(model), "Cast Exp Log Cast");
}

TEST_P(FloatComputation, LeavesTablesOfEmbeddingsAsTheyAre) {
  TestModel model;
  model.Input("ids", DataType::kInt64, {5});
  model.Constant("table", Narrowed(GetParam(), Ramp(Shape{9, 4}, 0.25f)));
  model.Node("Gather", {"table", "ids"}, {"g"}).Node("Relu", {"g"}, {"y"});
  TestModel copy = End(model);
  EXPECT_EQ(AfterPass(model), "Gather Cast Relu");
  EXPECT_EQ(model.graph().initializers.begin()->second.type(), GetParam());
  ExpectSameResults(copy, {Ints(Shape{5}, {0, 8, 3, 3, 1})});
}

TEST_P(FloatComputation, LeavesCachesThatGrowAsTheyAre) {
  TestModel model;
  model.Input("past", GetParam(), {Dimension::Symbol("past"), 4}).Input("x", GetParam(), {1, 4});
  Attributes axis;
  axis.Set("axis", int64_t{0});
  model.Node("Relu", {"x"}, {"new"}).Node("Concat", {"past", "new"}, {"present"}, axis);
  model.Node("Exp", {"present"}, {"y"}).Output("present").Output("y");
  EXPECT_EQ(AfterPass(model), "Cast Relu Cast Concat Cast Exp Cast");
}

TEST_P(FloatComputation, HandsFloatsThroughWhatMovesElements) {
  TestModel model = Begin();
  Attributes turned;
  turned.Set("perm", std::vector<int64_t>{1, 0});
  model.Node("Relu", {"x"}, {"r"}).Node("Transpose", {"r"}, {"t"}, turned);
  model.Node("Exp", {"t"}, {"y"});
  TestModel copy = End(model);
  EXPECT_EQ(AfterPass(model), "Relu Transpose Exp");
  ExpectSameResults(copy, {Ramp(Shape{3, 8}, 0.125f)}, 1, 0.02f);
}

TEST_P(FloatComputation, LeavesResultsOfOtherTypesAndNodesThatStateTheirs) {
  TestModel model;
  model.Input("x", GetParam(), {4}).Node("IsNaN", {"x"}, {"bools"});
  model.Node("Cast", {"x"}, {"y"}, To(DataType::kInt32)).Output("bools").Output("y");
  EXPECT_EQ(AfterPass(model), "Cast IsNaN Cast");
  EXPECT_EQ(model.graph().value(model.graph().outputs[0]).type.element, DataType::kBool);
  EXPECT_EQ(model.graph().value(model.graph().outputs[1]).type.element, DataType::kInt32);
}

// Otherwise it and reduced_precision would take what lies between to floats and back in turns.
TEST_P(FloatComputation, ConvertsNothingForNodesThatReadTheShapeAlone) {
  TestModel model;
  model.Input("x", GetParam(), {Dimension::Symbol("n"), 4}).Node("Shape", {"x"}, {"s"});
  model.Node("Size", {"x"}, {"c"}).Node("Reshape", {"x", "s"}, {"y"});
  model.Output("y").Output("c");
  EXPECT_EQ(AfterPass(model), "Shape Size Reshape");
}

TEST_P(FloatComputation, LeavesModelsThatAnotherProviderTakesPartOf) {
  TestModel model;
  model.Input("x", GetParam(), {4}).Node("Exp", {"x"}, {"e"}).Node("Log", {"e"}, {"y"});
  model.Output("y");
  ASSERT_TRUE(InferGraph(model.graph()).ok());
  PassContext context;
  context.owns = [](const Node& node) { return !node.Is("Log"); };
  const auto changed = ProviderPass("float_computation")->Run(model.graph(), context);
  ASSERT_TRUE(changed.ok());
  EXPECT_FALSE(*changed);
}

INSTANTIATE_TEST_SUITE_P(Types, FloatComputation,
                         testing::Values(DataType::kFloat16, DataType::kBfloat16));

}  // namespace
}  // namespace onnxd
