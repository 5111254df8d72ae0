// Loop, and what keeps a hostile one within bounds; operators that compute on values as a whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

using testing::HasSubstr;

// A Loop body (i, cond, carried) -> (cond, next): one node of `op` over (carried, carried), or over
// carried and the condition's constant.
std::shared_ptr<Graph> Body(const std::string& op, int version, DataType type, bool twice) {
  auto graph = std::make_shared<Graph>();
  const ValueId i = graph->AddValue("i", ValueType::TensorOf(DataType::kInt64, SymbolicShape{}));
  const ValueId condition =
      graph->AddValue("cond", ValueType::TensorOf(DataType::kBool, SymbolicShape{}));
  const ValueId carried = graph->AddValue("carried", ValueType::TensorOf(type));
  const ValueId next = graph->AddValue("next");
  graph->inputs = {i, condition, carried};
  Node node;
  node.name = "step";
  node.op_type = op;
  node.since_version = version;
  node.inputs = twice ? std::vector<ValueId>{carried, carried} : std::vector<ValueId>{carried};
  node.outputs = {next};
  if (op == "Concat") node.attributes.Set("axis", int64_t{0});
  graph->nodes.push_back(node);
  graph->outputs = {condition, next};
  return graph;
}

TestModel LoopOf(std::shared_ptr<Graph> body, DataType type) {
  TestModel model(20);
  model.Input("trips", DataType::kInt64, SymbolicShape{});
  model.Constant("go", Tensor::Scalar(true));
  model.Input("x", type, {1});
  Attributes attributes;
  attributes.Set("body", std::move(body));
  model.Node("Loop", {"trips", "go", "x"}, {"y"}, attributes).Output("y");
  return model;
}

Result<std::vector<Value>> RunLoop(const TestModel& model, int64_t trips, const Tensor& x,
                                   const RunOptions& run = {}) {
  SessionOptions options = DefaultSession();
  options.max_run_bytes = int64_t{64} << 20;
  ONNXD_ASSIGN_OR_RETURN(const auto session,
                         InferenceSession::FromModel(TestModel(model).model(), options));
  const std::vector<Value> inputs = {Tensor::Scalar(trips), x};
  return session->Run(inputs, run);
}

TEST(Loop, CarriesItsValueFromIterationToIteration) {
  const TestModel model = LoopOf(Body("Add", 14, DataType::kFloat, true), DataType::kFloat);
  for (const int64_t trips : {0, 1, 5}) {
    const auto outputs = RunLoop(model, trips, Floats(Shape{1}, {3}));
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[0], 3.0f * static_cast<float>(1 << trips));
  }
}

TEST(Loop, ShapesMayChangeWithinIt) {
  const TestModel model = LoopOf(Body("Concat", 13, DataType::kFloat, true), DataType::kFloat);
  const auto outputs = RunLoop(model, 4, Floats(Shape{1}, {3}));
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ((*outputs)[0].tensor().shape(), (Shape{16}));
}

TEST(Loop, ABodyOfAnotherTypeIsRefused) {
  const Tensor x = Tensor::Of<float>(Shape{1}, {1});
  const TestModel wider = LoopOf(Body("Add", 14, DataType::kDouble, true), DataType::kFloat);
  const auto outputs = RunLoop(wider, 1, x);
  ASSERT_EQ(outputs.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(outputs.status().message(), HasSubstr("'carried' is double[...]"));
}

TEST(Loop, WhatIsCarriedKeepsItsType) {
  const auto body = Body("Cast", 13, DataType::kFloat, false);
  body->nodes[0].attributes.Set("to", static_cast<int64_t>(DataType::kDouble));
  const TestModel model = LoopOf(body, DataType::kFloat);
  const Tensor x = Tensor::Of<float>(Shape{1}, {1});
  // Without an iteration the node gives its float, where a double is expected.
  for (const int64_t trips : {0, 2}) {
    EXPECT_EQ(RunLoop(model, trips, x).status().code(), StatusCode::kInvalidArgument) << trips;
  }
}

TEST(Loop, TensorsThatDoubleAreStoppedByTheBudget) {
  const TestModel model = LoopOf(Body("Concat", 13, DataType::kFloat, true), DataType::kFloat);
  const auto outputs = RunLoop(model, 1000, Floats(Shape{1}, {3}));
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.status().code(), StatusCode::kResourceExhausted);
}

TEST(Loop, TextThatDoublesIsStoppedByTheBudget) {
  const TestModel model =
      LoopOf(Body("StringConcat", 20, DataType::kString, true), DataType::kString);
  Tensor text = *Tensor::Create(DataType::kString, Shape{1});
  text.mutable_data<std::string>()[0] = "ab";
  const auto outputs = RunLoop(model, 1000, text);
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(outputs.status().message(), HasSubstr("Loop"));
}

TEST(Loop, TheDeadlineEndsIt) {
  const TestModel model = LoopOf(Body("Neg", 13, DataType::kFloat, false), DataType::kFloat);
  RunOptions run;
  run.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  const auto outputs =
      RunLoop(model, std::numeric_limits<int64_t>::max(), Floats(Shape{1}, {3}), run);
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.status().code(), StatusCode::kDeadlineExceeded);
}

TEST(Einsum, RefusesWhatWouldTakeHours) {
  TestModel model;
  Attributes attributes;
  attributes.Set("equation", std::string("ab,cd->ab"));
  for (const char* name : {"x", "y"}) model.Input(name, DataType::kFloat, {1024, 1024});
  model.Node("Einsum", {"x", "y"}, {"z"}, attributes).Output("z");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const Tensor big = *Tensor::Create(DataType::kFloat, Shape{1024, 1024});
  const std::vector<Value> inputs = {big, big};
  const auto outputs = (*session)->Run(inputs, {});
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.status().code(), StatusCode::kResourceExhausted);
}

TEST(Widening, HalfFloatsAreRoundedOncePerOperator) {
  TestModel model;
  model.Input("x", DataType::kFloat16, {2}).Node("Exp", {"x"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  Tensor x = *Tensor::Create(DataType::kFloat16, Shape{2});
  x.mutable_data<Float16>()[0] = Float16(1.0f);
  x.mutable_data<Float16>()[1] = Float16(-3.0f);
  const std::vector<Value> inputs = {x};
  const auto outputs = (*session)->Run(inputs, {});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ((*outputs)[0].tensor().data<Float16>()[0].bits, Float16(std::exp(1.0f)).bits);
  EXPECT_EQ((*outputs)[0].tensor().data<Float16>()[1].bits, Float16(std::exp(-3.0f)).bits);
}

TEST(StringMovement, TextMovesAsNumbersDo) {
  TestModel model;
  model.Input("x", DataType::kString, {2, 2}).Node("Transpose", {"x"}, {"t"});
  model.Constant("index", Ints(Shape{1}, {1})).Node("Gather", {"t", "index"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  Tensor x = *Tensor::Create(DataType::kString, Shape{2, 2});
  for (int i = 0; i < 4; ++i) x.mutable_data<std::string>()[i] = StrCat("t", i);
  const std::vector<Value> inputs = {x};
  const auto outputs = (*session)->Run(inputs, {});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  const Tensor& y = (*outputs)[0].tensor();
  EXPECT_EQ(y.shape(), (Shape{1, 2}));
  EXPECT_EQ(y.data<std::string>()[0], "t1");
  EXPECT_EQ(y.data<std::string>()[1], "t3");
}

}  // namespace
}  // namespace onnxd
