// Each pass: the graph before and after, and the same results.
#include "runtime/optimizer/passes/passes.h"

#include <gtest/gtest.h>

#include "runtime/ops/shape_inference.h"
#include "runtime/optimizer/pass_manager.h"
#include "runtime/session/constant_evaluator.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

// "Conv Relu" after running `pass` until it changes nothing.
std::string After(TestModel& model, const GraphPass* pass) {
  PassContext context;
  context.evaluate = MakeConstantEvaluator(*MakeProviders({}), std::make_shared<ThreadPool>(1));
  EXPECT_TRUE(InferGraph(model.graph()).ok());
  const Status status = RunPasses({pass}, OptimizationLevel::kAll, model.graph(), context);
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::string ops;
  for (const Node& node : model.graph().nodes) ops += (ops.empty() ? "" : " ") + node.op_type;
  return ops;
}

// The outputs at `disable` and `all` agree.
void ExpectSameResults(const TestModel& model, const Tensor& input) {
  const auto plain = model.Load(OptimizationLevel::kDisable);
  const auto optimized = model.Load(OptimizationLevel::kAll);
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  ASSERT_TRUE(optimized.ok()) << optimized.status().ToString();
  const std::vector<Value> inputs = {input};
  const auto a = (*plain)->Run(inputs, {}), b = (*optimized)->Run(inputs, {});
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  ASSERT_TRUE(b.ok()) << b.status().ToString();
  for (size_t i = 0; i < a->size(); ++i) {
    ASSERT_EQ((*a)[i].tensor().shape(), (*b)[i].tensor().shape());
    for (int64_t j = 0; j < (*a)[i].tensor().ElementCount(); ++j) {
      EXPECT_NEAR((*a)[i].tensor().data<float>()[j], (*b)[i].tensor().data<float>()[j], 1e-5);
    }
  }
}

Tensor Ramp(const Shape& shape, float scale) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * static_cast<float>(i % 13 - 6);
  }
  return tensor;
}

TEST(IdentityElimination, RemovesIdentityAndKeepsOutputNames) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Node("Relu", {"x"}, {"a"});
  model.Node("Identity", {"a"}, {"b"}).Node("Identity", {"b"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, IdentityElimination()), "Relu");
  EXPECT_EQ(model.graph().value(model.graph().outputs[0]).name, "y");
  ExpectSameResults(copy, Floats(Shape{2}, {-1, 2}));
}

TEST(IdentityElimination, KeepsWhatIsTheOnlyProducerOfAnOutput) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Node("Identity", {"x"}, {"y"}).Output("y");
  model.Node("Identity", {"x"}, {"z"}).Output("z");
  TestModel copy = model;
  EXPECT_EQ(After(model, IdentityElimination()), "Identity Identity");
  ExpectSameResults(copy, Floats(Shape{2}, {-1, 2}));
}

TEST(ConstantFolding, ComputesWhatIsConstant) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Constant("a", Floats(Shape{2}, {1, 2}));
  model.Constant("b", Floats(Shape{2}, {3, 4})).Node("Add", {"a", "b"}, {"c"});
  model.Node("Mul", {"x", "c"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConstantFolding()), "Mul");
  ExpectSameResults(copy, Floats(Shape{2}, {5, 6}));
}

TEST(ConstantFolding, LeavesResultsThatAreLargerThanTheirInputs) {
  TestModel model;
  model.Constant("shape", Ints(Shape{1}, {1 << 20})).Node("ConstantOfShape", {"shape"}, {"y"});
  model.Output("y");
  EXPECT_EQ(After(model, ConstantFolding()), "ConstantOfShape");
}

TEST(ConstantFolding, DoesNotFoldRandomNumbers) {
  TestModel model;
  Attributes shape;
  shape.Set("shape", std::vector<int64_t>{2});
  model.Node("RandomNormal", {}, {"y"}, shape).Output("y");
  EXPECT_EQ(After(model, ConstantFolding()), "RandomNormal");
}

TEST(DeadCodeElimination, RemovesWhatNothingUses) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Constant("unused", Floats(Shape{1}, {1}));
  model.Node("Relu", {"x"}, {"y"}).Node("Exp", {"x"}, {"dead"}).Node("Log", {"dead"}, {"deader"});
  model.Output("y");
  EXPECT_EQ(After(model, DeadCodeElimination()), "Relu");
  EXPECT_TRUE(model.graph().initializers.empty());
}

TestModel ConvModel() {
  TestModel model;
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  model.Input("x", DataType::kFloat, {1, 3, 6, 6}).Constant("w", Ramp(Shape{4, 3, 3, 3}, 0.1f));
  model.Node("Conv", {"x", "w"}, {"c"}, pads);
  return model;
}

TEST(ConvBatchNormalization, FoldsIntoTheWeights) {
  TestModel model = ConvModel();
  model.Constant("gamma", Ramp(Shape{4}, 0.3f)).Constant("beta", Ramp(Shape{4}, 0.2f));
  model.Constant("mean", Ramp(Shape{4}, 0.1f)).Constant("var", Floats(Shape{4}, {1, 2, 3, 4}));
  model.Node("BatchNormalization", {"c", "gamma", "beta", "mean", "var"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConvBatchNormalizationFusion()), "Conv");
  ExpectSameResults(copy, Ramp(Shape{1, 3, 6, 6}, 0.5f));
}

TEST(ConvBatchNormalization, LeavesAConvolutionThatOthersRead) {
  TestModel model = ConvModel();
  for (const char* name : {"gamma", "beta", "mean", "var"}) {
    model.Constant(name, Floats(Shape{4}, {1, 2, 3, 4}));
  }
  model.Node("BatchNormalization", {"c", "gamma", "beta", "mean", "var"}, {"y"}).Output("y");
  model.Output("c");
  EXPECT_EQ(After(model, ConvBatchNormalizationFusion()), "Conv BatchNormalization");
}

TEST(ConvActivation, TakesTheActivation) {
  TestModel model = ConvModel();
  model.Node("Relu", {"c"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConvActivationFusion()), "FusedConv");
  ExpectSameResults(copy, Ramp(Shape{1, 3, 6, 6}, 0.5f));
}

TEST(ConvActivation, TakesAResidualSumAndItsActivation) {
  TestModel model = ConvModel();
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  model.Constant("w2", Ramp(Shape{4, 4, 3, 3}, 0.05f)).Node("Conv", {"c", "w2"}, {"d"}, pads);
  model.Node("Add", {"d", "c"}, {"s"}).Node("Relu", {"s"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConvActivationFusion()), "Conv FusedConv");
  ExpectSameResults(copy, Ramp(Shape{1, 3, 6, 6}, 0.5f));
}

TEST(ConvActivation, SeesSiluInAProductWithItsSigmoid) {
  TestModel model = ConvModel();
  model.Node("Sigmoid", {"c"}, {"s"}).Node("Mul", {"c", "s"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConvActivationFusion()), "FusedConv");
  ExpectSameResults(copy, Ramp(Shape{1, 3, 6, 6}, 0.5f));
}

TEST(ConvActivation, LeavesAnIntermediateThatIsAnOutput) {
  TestModel model = ConvModel();
  model.Node("Relu", {"c"}, {"y"}).Output("y").Output("c");
  EXPECT_EQ(After(model, ConvActivationFusion()), "Conv Relu");
}

}  // namespace
}  // namespace onnxd
