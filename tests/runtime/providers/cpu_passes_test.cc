// The CPU provider's passes: the graph before and after, and the same results.
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"
#include "runtime/optimizer/pass_manager.h"
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// Queries, keys and values [batch, rows, heads, width], scores scaled and masked when asked.
TestModel AttentionModel(bool scaled, const Shape* mask) {
  TestModel model;
  const Dimension batch = Dimension::Symbol("batch");
  for (const char* name : {"q", "k", "v"}) {
    const int64_t rows = name[0] == 'q' ? 5 : 7;
    model.Input(name, DataType::kFloat, {batch, rows, 2, 4});
  }
  model.Node("Transpose", {"q"}, {"q1"}, Order({0, 2, 1, 3}));
  model.Node("Transpose", {"k"}, {"k1"}, Order({0, 2, 3, 1}));
  model.Node("Transpose", {"v"}, {"v1"}, Order({0, 2, 1, 3}));
  model.Node("MatMul", {"q1", "k1"}, {"s0"});
  std::string scores = "s0";
  if (scaled) {
    model.Constant("root", Floats(Shape{}, {2})).Node("Div", {scores, "root"}, {"s1"});
    scores = "s1";
  }
  if (mask != nullptr) {
    model.Constant("mask", Ramp(*mask, 0.7f)).Node("Add", {scores, "mask"}, {"s2"});
    scores = "s2";
  }
  model.Node("Softmax", {scores}, {"p"}).Node("MatMul", {"p", "v1"}, {"o"});
  model.Node("Transpose", {"o"}, {"y"}, Order({0, 2, 1, 3})).Output("y");
  return model;
}

std::vector<Value> AttentionInputs(int64_t batch) {
  return {Ramp(Shape{batch, 5, 2, 4}, 0.31f), Ramp(Shape{batch, 7, 2, 4}, 0.23f),
          Ramp(Shape{batch, 7, 2, 4}, 0.17f)};
}

TEST(AttentionFusion, TakesScaleAndTranspositions) {
  for (const bool scaled : {false, true}) {
    TestModel model = AttentionModel(scaled, nullptr), copy = model;
    const std::string ops = After(model, ProviderPass("attention"));
    EXPECT_TRUE(ops.ends_with(" FusedAttention")) << ops;
    ExpectSameResults(copy, AttentionInputs(3));
  }
}

TEST(AttentionFusion, TakesMasksThatBroadcast) {
  for (const Shape& mask : {Shape{5, 7}, Shape{1, 1, 1, 7}, Shape{1, 2, 5, 7}, Shape{2, 1, 1}}) {
    TestModel model = AttentionModel(true, &mask), copy = model;
    const std::string ops = After(model, ProviderPass("attention"));
    EXPECT_TRUE(ops.ends_with(" FusedAttention")) << ops << " with " << mask.ToString();
    ExpectSameResults(copy, AttentionInputs(2));
  }
}

TEST(AttentionFusion, GivesZerosForRowsThatSafeSoftmaxClears) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  TestModel model;
  model.Input("q", DataType::kFloat, {1, 2, 4}).Input("k", DataType::kFloat, {1, 3, 4});
  model.Input("v", DataType::kFloat, {1, 3, 4}).Constant("zero", Floats(Shape{1}, {0}));
  model.Constant("mask", Floats(Shape{2, 3}, {0, kHidden, 0, kHidden, kHidden, kHidden}));
  model.Node("Transpose", {"k"}, {"t"}, Order({0, 2, 1})).Node("MatMul", {"q", "t"}, {"s"});
  model.Node("Add", {"s", "mask"}, {"m"}).Node("Softmax", {"m"}, {"p"}).Node("IsNaN", {"p"}, {"n"});
  model.Node("Where", {"n", "zero", "p"}, {"w"}).Node("MatMul", {"w", "v"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_TRUE(After(model, ProviderPass("attention")).ends_with(" FusedAttention"));
  ExpectSameResults(
      copy, {Ramp(Shape{1, 2, 4}, 0.3f), Ramp(Shape{1, 3, 4}, 0.2f), Ramp(Shape{1, 3, 4}, 0.1f)});
}

TEST(AttentionFusion, LetsTheMaskStretchALoneQuery) {
  TestModel model;
  model.Input("q", DataType::kFloat, {2, 1, 4}).Input("k", DataType::kFloat, {2, 3, 4});
  model.Input("v", DataType::kFloat, {2, 3, 4}).Constant("mask", Ramp(Shape{5, 3}, 0.3f));
  model.Node("Transpose", {"k"}, {"t"}, Order({0, 2, 1})).Node("MatMul", {"q", "t"}, {"s"});
  model.Node("Add", {"s", "mask"}, {"m"}).Node("Softmax", {"m"}, {"p"});
  model.Node("MatMul", {"p", "v"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_TRUE(After(model, ProviderPass("attention")).ends_with(" FusedAttention"));
  ExpectSameResults(
      copy, {Ramp(Shape{2, 1, 4}, 0.3f), Ramp(Shape{2, 3, 4}, 0.2f), Ramp(Shape{2, 3, 4}, 0.1f)});
}

TEST(AttentionFusion, TakesMoreRowsThanOneBlock) {
  TestModel model;
  model.Input("q", DataType::kFloat, {2, 101, 20}).Input("k", DataType::kFloat, {2, 67, 20});
  model.Input("v", DataType::kFloat, {1, 67, 33});
  model.Node("Transpose", {"k"}, {"t"}, Order({0, 2, 1})).Node("MatMul", {"q", "t"}, {"s"});
  model.Node("Softmax", {"s"}, {"p"}).Node("MatMul", {"p", "v"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_TRUE(After(model, ProviderPass("attention")).ends_with(" FusedAttention"));
  ExpectSameResults(copy, {Ramp(Shape{2, 101, 20}, 0.1f), Ramp(Shape{2, 67, 20}, 0.1f),
                           Ramp(Shape{1, 67, 33}, 0.1f)});
}

// Swin's shifted windows: scores [batch * 3, 2, 5, 5] with a mask for each of the three windows.
TestModel WindowModel(const Shape& mask, std::vector<int64_t> apart, bool biased = true) {
  TestModel model;
  for (const char* name : {"q", "k", "v"}) {
    model.Input(name, DataType::kFloat, {Dimension::Symbol("windows"), 2, 5, 4});
  }
  model.Node("Transpose", {"k"}, {"t"}, Order({0, 1, 3, 2})).Node("MatMul", {"q", "t"}, {"s"});
  std::string scores = "s";
  if (biased) {
    model.Constant("bias", Ramp(Shape{1, 2, 5, 5}, 0.3f)).Node("Add", {"s", "bias"}, {"b"});
    scores = "b";
  }
  model.Constant("apart", Tensor::Of<int64_t>(Shape{5}, apart));
  model.Constant("back", Tensor::Of<int64_t>(Shape{4}, {-1, 2, 5, 5}));
  model.Constant("mask", Ramp(mask, 0.7f)).Node("Reshape", {scores, "apart"}, {"a"});
  model.Node("Add", {"a", "mask"}, {"m"}).Node("Reshape", {"m", "back"}, {"w"});
  model.Node("Softmax", {"w"}, {"p"}).Node("MatMul", {"p", "v"}, {"y"}).Output("y");
  return model;
}

TEST(AttentionFusion, TakesAMaskForEachWindow) {
  for (const bool biased : {true, false}) {
    for (const Shape& mask : {Shape{1, 3, 1, 5, 5}, Shape{1, 3, 2, 1, 5}}) {
      TestModel model = WindowModel(mask, {-1, 3, 2, 5, 5}, biased), copy = model;
      EXPECT_TRUE(After(model, ProviderPass("attention")).ends_with("FusedAttention"));
      for (const int64_t windows : {3, 6}) {
        ExpectSameResults(
            copy, {Ramp(Shape{windows, 2, 5, 4}, 0.31f), Ramp(Shape{windows, 2, 5, 4}, 0.23f),
                   Ramp(Shape{windows, 2, 5, 4}, 0.17f)});
      }
    }
  }
}

TEST(AttentionFusion, LeavesReshapesThatAreNoWindows) {
  // Heads and windows change places.
  TestModel model = WindowModel(Shape{1, 2, 3, 5, 5}, {-1, 2, 3, 5, 5});
  EXPECT_FALSE(After(model, ProviderPass("attention")).ends_with("FusedAttention"));
  // A mask for each image.
  TestModel images = WindowModel(Shape{2, 3, 1, 5, 5}, {2, 3, 2, 5, 5});
  EXPECT_FALSE(After(images, ProviderPass("attention")).ends_with("FusedAttention"));
}

TEST(AttentionFusion, LeavesScoresThatOthersRead) {
  TestModel model;
  model.Input("q", DataType::kFloat, {2, 3, 4}).Input("k", DataType::kFloat, {2, 3, 4});
  model.Node("Transpose", {"k"}, {"t"}, Order({0, 2, 1})).Node("MatMul", {"q", "t"}, {"s"});
  model.Node("Softmax", {"s"}, {"p"}).Node("MatMul", {"p", "k"}, {"y"}).Output("y").Output("p");
  EXPECT_EQ(After(model, ProviderPass("attention")), "Transpose MatMul Softmax MatMul");
}

class MatMulEpilogue : public testing::Test {
 protected:
  void SetUp() override {
    pass_ = ProviderPass("matmul_epilogue");
    if (pass_ == nullptr) GTEST_SKIP() << "this build has no oneDNN";
    model_.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), 128});
    model_.Input("r", DataType::kFloat, {Dimension::Symbol("rows"), 129});
    model_.Constant("w", Ramp(Shape{128, 129}, 0.02f)).Constant("b", Ramp(Shape{129}, 0.1f));
    model_.Node("MatMul", {"x", "w"}, {"p"});
  }

  void ExpectOne() {
    model_.Output("y");
    TestModel copy = model_;
    EXPECT_EQ(After(model_, pass_), "MatMulBiasActivation");
    for (const int64_t rows : {1, 5}) {
      ExpectSameResults(copy, {Ramp(Shape{rows, 128}, 0.1f), Ramp(Shape{rows, 129}, 0.3f)});
    }
  }

  const GraphPass* pass_ = nullptr;
  TestModel model_{20};
};

TEST_F(MatMulEpilogue, TakesBiasAndActivation) {
  model_.Node("Add", {"b", "p"}, {"q"}).Node("Gelu", {"q"}, {"y"});
  ExpectOne();
}

TEST_F(MatMulEpilogue, TakesGeluByTanh) {
  Attributes approximate;
  approximate.Set("approximate", std::string("tanh"));
  model_.Node("Gelu", {"p"}, {"y"}, approximate);
  ExpectOne();
}

TEST_F(MatMulEpilogue, TakesBiasAndResidualInAnyOrder) {
  model_.Node("Add", {"p", "b"}, {"q"}).Node("Add", {"r", "q"}, {"y"});
  ExpectOne();
}

TEST_F(MatMulEpilogue, TakesAResidualThenAnActivation) {
  model_.Node("Add", {"p", "r"}, {"q"}).Node("Relu", {"q"}, {"y"});
  ExpectOne();
}

TEST_F(MatMulEpilogue, LeavesARowThatFollowsTheActivation) {
  model_.Node("Relu", {"p"}, {"q"}).Node("Add", {"q", "b"}, {"y"}).Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_), "MatMulBiasActivation Add");
  ExpectSameResults(copy, {Ramp(Shape{2, 128}, 0.1f), Ramp(Shape{2, 129}, 0.3f)});
}

TEST_F(MatMulEpilogue, LeavesAProductThatOthersRead) {
  model_.Node("Relu", {"p"}, {"y"}).Output("y").Output("p");
  EXPECT_EQ(After(model_, pass_), "MatMul Relu");
}

TestModel GateModel() {
  TestModel model;
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  model.Input("x", DataType::kFloat, {1, 3, 6, 6}).Constant("w", Ramp(Shape{4, 3, 3, 3}, 0.1f));
  model.Node("Conv", {"x", "w"}, {"c"}, pads);
  return model;
}

TEST(ConvGate, SeesSiluInAProductWithItsSigmoid) {
  TestModel model = GateModel();
  model.Node("Sigmoid", {"c"}, {"s"}).Node("Mul", {"s", "c"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ProviderPass("conv_gate")), "FusedConv");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 6}, 0.5f)});
}

TEST(ConvGate, TakesHardSwish) {
  TestModel model = GateModel();
  model.Node("HardSwish", {"c"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ProviderPass("conv_gate")), "FusedConv");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 6}, 0.5f)});
}

TEST(ConvGate, LeavesASigmoidThatOthersRead) {
  TestModel model = GateModel();
  model.Node("Sigmoid", {"c"}, {"s"}).Node("Mul", {"s", "c"}, {"y"}).Output("y").Output("s");
  EXPECT_EQ(After(model, ProviderPass("conv_gate")), "Conv Sigmoid Mul");
}

// Operators of the `onnxd` domain may stand in a file, too.
TEST(OwnOperators, RefuseWhatOurPassesNeverWrite) {
  const auto load = [](const std::string& attribute, Attribute value) {
    TestModel model;
    Attributes attributes;
    attributes.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    attributes.Set(attribute, std::move(value));
    model.Input("x", DataType::kFloat, {1, 8, 8, 32});
    model.Constant("w", Ramp(Shape{32, 16, 3, 3}, 0.1f));
    model.Node("ConvWinograd", {"x", "w"}, {"y"}, attributes, "onnxd").Output("y");
    return model.Load();
  };
  EXPECT_FALSE(load("group", int64_t{2}).ok());
  EXPECT_FALSE(load("strides", std::vector<int64_t>{2, 2}).ok());
  EXPECT_FALSE(load("tile", int64_t{3}).ok());
  TestModel outside;
  Attributes attributes;
  attributes.Set("pads", std::vector<int64_t>{-1, -1, 0, 0});
  outside.Input("x", DataType::kFloat, {1, 8, 8, 4}).Constant("e", Ramp(Shape{6, 4, 1, 1}, 0.1f));
  outside.Constant("w", Ramp(Shape{6, 1, 3, 3}, 0.1f));
  outside.Node("ExpandDepthwise", {"x", "e", "", "w"}, {"y"}, attributes, "onnxd").Output("y");
  const auto session = outside.Load();
  EXPECT_FALSE(session.ok() &&
               (*session)->Run(std::vector<Value>{Ramp(Shape{1, 8, 8, 4}, 1.0f)}, {}).ok());
  const auto attention = [](std::vector<int64_t> order) {
    TestModel model;
    Attributes attributes;
    attributes.Set("query_perm", std::move(order));
    for (const char* name : {"q", "k", "v"}) model.Input(name, DataType::kFloat, {4, 4});
    model.Node("FusedAttention", {"q", "k", "v"}, {"y"}, attributes, "onnxd").Output("y");
    return model.Load();
  };
  EXPECT_TRUE(attention({0, 1}).ok());
  TestModel windows;
  for (const char* name : {"q", "k", "v"}) windows.Input(name, DataType::kFloat, {4, 2, 2});
  windows.Constant("w", Ramp(Shape{1, 3, 2, 2}, 0.1f));  // three windows of four matrices
  windows.Node("FusedAttention", {"q", "k", "v", "", "w"}, {"y"}, {}, "onnxd").Output("y");
  const auto uneven = windows.Load();
  EXPECT_FALSE(uneven.ok() &&
               (*uneven)->Run(std::vector<Value>(3, Ramp(Shape{4, 2, 2}, 0.1f)), {}).ok());
  for (const auto& order : {std::vector<int64_t>{1, 0}, {0, 5}, {1, 1}, {0}}) {
    EXPECT_FALSE(attention(order).ok());
  }
}

// A Loop that adds `step` times a constant of its body to what it carries.
TestModel LoopOverBody() {
  TestModel model(20);
  model.Input("trips", DataType::kInt64, SymbolicShape{}).Input("x", DataType::kFloat, {2});
  model.Constant("go", Tensor::Scalar(true)).Constant("step", Floats(Shape{2}, {1, -2}));
  auto body = std::make_shared<Graph>();
  const ValueId i = body->AddValue("i", ValueType::TensorOf(DataType::kInt64, SymbolicShape{}));
  const ValueId condition =
      body->AddValue("condition", ValueType::TensorOf(DataType::kBool, SymbolicShape{}));
  const ValueId carried = body->AddValue("carried", ValueType::TensorOf(DataType::kFloat));
  const ValueId step = body->AddValue("step_inside");
  const ValueId twice = body->AddValue("twice"), next = body->AddValue("next");
  body->inputs = {i, condition, carried};
  body->captures = {step};
  for (const auto& [inputs, output] :
       {std::pair(std::vector{step, step}, twice), std::pair(std::vector{carried, twice}, next)}) {
    Node node;
    node.op_type = "Add";
    node.since_version = 14;
    node.inputs = inputs;
    node.outputs = {output};
    body->nodes.push_back(node);
  }
  body->outputs = {condition, next};
  Attributes attributes;
  attributes.Set("body", std::move(body));
  model.Node("Loop", {"trips", "go", "x"}, {"y"}, attributes).Output("y");
  model.graph().nodes.back().captures = {model.graph().FindValue("step")};
  return model;
}

TEST(ConstantCaptures, LetPassesWorkInsideOfBodies) {
  for (const auto level : {OptimizationLevel::kDisable, OptimizationLevel::kAll}) {
    const auto session = LoopOverBody().Load(level);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const std::vector<Value> inputs = {Tensor::Scalar(int64_t{3}), Floats(Shape{2}, {0.5f, 0.25f})};
    const auto outputs = (*session)->Run(inputs, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[0], 6.5f);
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[1], -11.75f);
  }
  TestModel model = LoopOverBody();
  auto passes = StandardPasses();
  EXPECT_EQ(After(model, passes), "Loop");
  const auto body = model.graph().nodes[0].attributes.Subgraph("body");
  EXPECT_EQ(body->nodes.size(), 2u);
  passes.push_back(ProviderPass("constant_captures"));
  EXPECT_EQ(After(model, passes), "Loop");
  EXPECT_EQ(body->nodes.size(), 1u);
  EXPECT_EQ(body->captures[0], kNoValue);
}

class ExpandDepthwise : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"channels_last", "expand_depthwise"}) {
      passes_.push_back(ProviderPass(name));
      if (passes_.back() == nullptr) GTEST_SKIP() << "this build has no oneDNN";
    }
    passes_.push_back(DeadCodeElimination());
  }

  // 1 x 1 to 80 channels, then a kernel x kernel window over each of them.
  TestModel Block(int64_t batch, int64_t kernel, int64_t stride, std::vector<int64_t> pads,
                  const std::string& activation) {
    TestModel model;
    model.Input("x", DataType::kFloat, {batch, 7, 61, 53});
    model.Constant("e", Ramp(Shape{80, 7, 1, 1}, 0.05f)).Constant("eb", Ramp(Shape{80}, 0.1f));
    model.Constant("w", Ramp(Shape{80, 1, kernel, kernel}, 0.02f));
    Attributes window;
    window.Set("group", int64_t{80});
    window.Set("strides", std::vector<int64_t>{stride, stride});
    window.Set("pads", std::move(pads));
    model.Node("Conv", {"x", "e", "eb"}, {"a"});
    if (activation == "Silu") {
      model.Node("Sigmoid", {"a"}, {"s"}).Node("Mul", {"a", "s"}, {"b"});
    } else {
      model.Node(activation, {"a"}, {"b"});
    }
    model.Node("Conv", {"b", "w"}, {"c"}, window).Node("Relu", {"c"}, {"y"}).Output("y");
    return model;
  }

  std::vector<const GraphPass*> passes_;
};

TEST_F(ExpandDepthwise, TakesALargeExpansionThatNothingElseReads) {
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel again = Block(1, 3, 1, {1, 1, 1, 1}, "Relu");
  EXPECT_EQ(After(again, passes), "Transpose ExpandDepthwise Transpose");
  TestModel read = Block(1, 3, 1, {1, 1, 1, 1}, "Relu");
  read.Output("b");
  EXPECT_EQ(After(read, passes), "Transpose ConvChannelsLast ConvChannelsLast Transpose Transpose");
}

// A block of MobileNetV2: what goes in is added to what comes out.
TEST_F(ExpandDepthwise, TakesTheProjectionThatFollows) {
  const auto block = [&](int64_t batch, bool adds) {
    TestModel model;
    model.Input("i", DataType::kFloat, {batch, 7, 61, 53});
    model.Constant("e", Ramp(Shape{80, 7, 1, 1}, 0.05f))
        .Constant("w", Ramp(Shape{80, 1, 3, 3}, 0.02f));
    model.Constant("p", Ramp(Shape{7, 80, 1, 1}, 0.01f)).Constant("b", Ramp(Shape{7}, 0.1f));
    Attributes window;
    window.Set("group", int64_t{80});
    window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("Relu", {"i"}, {"x"}).Node("Conv", {"x", "e"}, {"a"}).Node("Relu", {"a"}, {"r"});
    model.Node("Conv", {"r", "w"}, {"c"}, window).Node("Sigmoid", {"c"}, {"s"});
    model.Node("Conv", {"s", "p", "b"}, {"y"});
    if (adds) model.Node("Add", {"y", "x"}, {"z"});
    return std::move(model.Output(adds ? "z" : "y"));
  };
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  for (const bool adds : {false, true}) {
    TestModel again = block(1, adds);
    EXPECT_TRUE(After(again, passes).ends_with(" ExpandDepthwise Transpose"));
    for (const int64_t batch : {1, 2}) {
      ExpectSameResults(block(batch, adds), {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 1);
      ExpectSameResults(block(batch, adds), {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 3);
    }
  }
}

// Channels of which the last ones are computed twice, widths of which the last pixels are.
TEST_F(ExpandDepthwise, MakesTheMeansThatSqueezeAndExciteAsksFor) {
  const auto block = [](int64_t batch, int64_t width, const char* activation) {
    TestModel model;
    model.Input("x", DataType::kFloat, {batch, 7, 91, width});
    model.Constant("e", Ramp(Shape{72, 7, 1, 1}, 0.05f));
    model.Constant("w", Ramp(Shape{72, 1, 3, 3}, 0.02f));
    Attributes window;
    window.Set("group", int64_t{72});
    window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("Conv", {"x", "e"}, {"a"}).Node("Relu", {"a"}, {"r"});
    model.Node("Conv", {"r", "w"}, {"c"}, window).Node(activation, {"c"}, {"y"});
    model.Node("GlobalAveragePool", {"y"}, {"m"});
    return std::move(model.Output("y").Output("m"));
  };
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel summed = block(1, 53, "Relu"), apart = block(1, 53, "Sigmoid");
  EXPECT_EQ(After(summed, passes).find("GlobalAveragePool"), std::string::npos);
  EXPECT_NE(After(apart, passes).find("GlobalAveragePool"), std::string::npos);
  for (const char* activation : {"Relu", "Sigmoid"}) {
    for (const int64_t batch : {1, 2}) {
      for (const int64_t width : {53, 56}) {
        const TestModel model = block(batch, width, activation);
        ExpectSameResults(model, {Ramp(Shape{batch, 7, 91, width}, 0.1f)}, 1);
        ExpectSameResults(model, {Ramp(Shape{batch, 7, 91, width}, 0.1f)}, 3);
      }
    }
  }
}

// Squeeze-and-excite of an image that outweighs the weights behind it.
TEST(GatedConv, MultipliesTheWeightsInsteadOfTheImage) {
  const auto block = [](int64_t batch, int64_t out, bool adds) {
    TestModel model;
    model.Input("x", DataType::kFloat, {batch, 5, 31, 27});
    model.Constant("w", Ramp(Shape{36, 5, 3, 3}, 0.02f))
        .Constant("g", Ramp(Shape{36, 36, 1, 1}, 0.1f));
    model.Constant("p", Ramp(Shape{out, 36, 1, 1}, 0.03f)).Constant("b", Ramp(Shape{out}, 0.1f));
    model.Constant("q", Ramp(Shape{out, 36, 1, 1}, 0.01f));
    Attributes window;
    window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("Conv", {"x", "w"}, {"c"}, window).Node("Relu", {"c"}, {"r"});
    model.Node("GlobalAveragePool", {"r"}, {"m"}).Node("Conv", {"m", "g"}, {"s"});
    model.Node("Sigmoid", {"s"}, {"t"}).Node("Mul", {"t", "r"}, {"u"});
    model.Node("Conv", {"u", "p", "b"}, {"v"});
    if (adds) {
      model.Node("Conv", {"r", "q"}, {"o"}).Node("Add", {"v", "o"}, {"y"});
    } else {
      model.Node("Tanh", {"v"}, {"y"});
    }
    return std::move(model.Output("y"));
  };
  std::vector<const GraphPass*> passes = StandardPasses();
  for (const char* name : {"channels_last", "gated_conv"}) {
    passes.push_back(ProviderPass(name));
    if (passes.back() == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  }
  passes.push_back(DeadCodeElimination());
  for (const bool adds : {false, true}) {
    if (math::CurrentSimd().few_rows != nullptr) {
      TestModel again = block(1, 20, adds);
      const std::string after = After(again, passes);
      EXPECT_NE(after.find("GatedConv"), std::string::npos) << after;
      EXPECT_EQ(after.find("Mul"), std::string::npos) << after;
    }
    for (const int64_t batch : {1, 2}) {
      for (const int64_t out : {20, 70, 200}) {
        ExpectSameResults(block(batch, out, adds), {Ramp(Shape{batch, 5, 31, 27}, 0.1f)}, 1);
        ExpectSameResults(block(batch, out, adds), {Ramp(Shape{batch, 5, 31, 27}, 0.1f)}, 3);
      }
    }
  }
}

TEST_F(ExpandDepthwise, ComputesBandsOfAnyWindow) {
  for (const int64_t batch : {1, 2}) {
    for (const auto& [kernel, stride] : {std::pair{3, 1}, {3, 2}, {5, 2}, {7, 1}}) {
      for (const char* activation : {"Relu", "Silu"}) {
        const TestModel model = Block(batch, kernel, stride, {1, 0, 2, 1}, activation);
        ExpectSameResults(model, {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 1);
        ExpectSameResults(model, {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 3);
      }
    }
  }
}

// Those of windows that are odd and of stride 1 or 2 are our own loops', the others oneDNN's.
TEST_F(ExpandDepthwise, LeavesOtherWindowsToConvolutions) {
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel wide = Block(1, 2, 3, {1, 0, 2, 1}, "Relu");
  EXPECT_EQ(After(wide, passes), "Transpose ConvChannelsLast ConvChannelsLast Transpose");
  for (const int64_t batch : {1, 2}) {
    for (const auto& [kernel, stride] : {std::pair{2, 3}, {3, 3}, {4, 1}, {9, 2}}) {
      const TestModel model = Block(batch, kernel, stride, {1, 0, 2, 1}, "Relu");
      ExpectSameResults(model, {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 3);
    }
  }
}

class PlanarConv : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"channels_last", "planar_conv", "expand_depthwise"}) {
      passes_.push_back(ProviderPass(name));
      if (passes_.back() == nullptr) GTEST_SKIP() << "this build has no oneDNN";
    }
    passes_.push_back(DeadCodeElimination());
  }

  struct Case {
    int64_t batch, channels, kernel, stride;
    std::vector<int64_t> pads;
    bool depthwise_follows;
    bool projection_follows = false;
    int64_t out = 40;
  };

  // Of images of 83 x 77.
  TestModel Stem(const Case& c, const std::string& activation) {
    TestModel model;
    model.Input("x", DataType::kFloat, {c.batch, c.channels, 83, 77});
    model.Constant("w", Ramp(Shape{c.out, c.channels, c.kernel, c.kernel}, 0.03f));
    model.Constant("b", Ramp(Shape{c.out}, 0.1f)).Constant("d", Ramp(Shape{c.out, 1, 3, 3}, 0.05f));
    Attributes window, depthwise;
    window.Set("strides", std::vector<int64_t>{c.stride, c.stride});
    window.Set("pads", c.pads);
    depthwise.Set("group", c.out);
    depthwise.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("Conv", {"x", "w", "b"}, {"a"}, window);
    if (activation == "Silu") {
      model.Node("Sigmoid", {"a"}, {"s"}).Node("Mul", {"a", "s"}, {"y"});
    } else {
      model.Node(activation, {"a"}, {"y"});
    }
    if (!c.depthwise_follows) return std::move(model.Output("y"));
    model.Node("Conv", {"y", "d"}, {"z"}, depthwise);
    if (!c.projection_follows) return std::move(model.Output("z"));
    model.Constant("p", Ramp(Shape{6, c.out, 1, 1}, 0.02f));
    return std::move(model.Node("Conv", {"z", "p"}, {"q"}).Output("q"));
  }

  std::vector<const GraphPass*> passes_;
};

TEST_F(PlanarConv, ReadsImagesAsTheyCome) {
  if (math::CurrentSimd().few_rows == nullptr) GTEST_SKIP() << "registers of 512 bits alone";
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel alone = Stem({1, 3, 3, 2, {1, 1, 1, 1}, false}, "Relu");
  EXPECT_EQ(After(alone, passes), "PlanarConv Transpose");
  TestModel followed = Stem({1, 3, 3, 1, {1, 1, 1, 1}, true}, "Relu");
  EXPECT_EQ(After(followed, passes), "PlanarDepthwise Transpose");
  TestModel block = Stem({1, 3, 3, 1, {1, 1, 1, 1}, true, true, 32}, "Relu");
  EXPECT_EQ(After(block, passes), "PlanarDepthwise Transpose");
  TestModel many = Stem({1, 5, 3, 2, {1, 1, 1, 1}, false}, "Relu");
  EXPECT_EQ(After(many, passes), "Transpose ConvChannelsLast Transpose");
}

TEST_F(PlanarConv, AgreesWithPlainConvolutions) {
  for (const bool followed : {false, true}) {
    for (const char* activation : {"Relu", "Silu"}) {
      for (const Case& c :
           {Case{1, 3, 3, 2, {1, 1, 1, 1}, followed}, Case{2, 1, 3, 1, {0, 0, 0, 0}, followed},
            Case{3, 4, 7, 2, {3, 3, 3, 3}, followed}, Case{2, 2, 5, 3, {4, 0, 1, 3}, followed},
            Case{1, 3, 1, 1, {0, 2, 3, 0}, followed}, Case{1, 3, 2, 4, {5, 5, 6, 6}, followed}}) {
        const TestModel model = Stem(c, activation);
        const Tensor x = Ramp(Shape{c.batch, c.channels, 83, 77}, 0.1f);
        ExpectSameResults(model, {x}, 1);
        ExpectSameResults(model, {x}, 3);
      }
    }
  }
}

TEST(OnePixelConv, AgreesWithPlainConvolutions) {
  for (const int64_t batch : {1, 2, 13}) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{96, 4}, {4, 96}, {130, 64}}) {
      TestModel model;
      model.Input("x", DataType::kFloat, {batch, in, 5, 3})
          .Input("z", DataType::kFloat, {batch, out, 1, 1});
      model.Constant("w", Ramp(Shape{out, in, 1, 1}, 0.03f)).Constant("b", Ramp(Shape{out}, 0.1f));
      model.Node("GlobalAveragePool", {"x"}, {"p"}).Node("Conv", {"p", "w", "b"}, {"c"});
      model.Node("Add", {"c", "z"}, {"s"}).Node("Sigmoid", {"s"}, {"y"}).Output("y");
      const std::vector<Value> inputs = {Ramp(Shape{batch, in, 5, 3}, 0.1f),
                                         Ramp(Shape{batch, out, 1, 1}, 0.2f)};
      ExpectSameResults(model, inputs, 1);
      ExpectSameResults(model, inputs, 3);
    }
  }
}

// Small images with large weights go to a product of our own where registers have 512 bits.
TEST(SmallImageConv, AgreesWithPlainConvolutions) {
  struct Case {
    int64_t batch, window, stride, dilation;
    const char* activation;
    bool has_sum;
  };
  for (const Case& c : {Case{1, 1, 1, 1, "Relu", true}, Case{1, 3, 1, 1, "Relu", true},
                        Case{5, 3, 1, 1, "Sigmoid", false}, Case{7, 1, 2, 1, "Relu", false},
                        Case{1, 3, 2, 1, "Sigmoid", true}, Case{2, 3, 1, 2, "Relu", false},
                        Case{1, 5, 2, 1, "", true}}) {
    TestModel model;
    const int64_t in = c.window == 1 ? 1024 : 96, out = 80, pad = c.window / 2 * c.dilation;
    const int64_t side = (7 + c.stride - 1) / c.stride;
    model.Input("x", DataType::kFloat, {c.batch, in, 7, 7});
    model.Constant("w", Ramp(Shape{out, in, c.window, c.window}, 0.01f));
    model.Constant("b", Ramp(Shape{out}, 0.1f));
    Attributes window;
    window.Set("strides", std::vector<int64_t>(2, c.stride));
    window.Set("dilations", std::vector<int64_t>(2, c.dilation));
    window.Set("pads", std::vector<int64_t>(4, pad));
    model.Node("Conv", {"x", "w", "b"}, {"c"}, window);
    std::vector<Value> inputs(c.has_sum ? 2 : 1);
    inputs[0] = Ramp(Shape{c.batch, in, 7, 7}, 0.1f);
    if (c.has_sum) {
      model.Input("z", DataType::kFloat, {c.batch, out, side, side});
      model.Node("Add", {"c", "z"}, {"s"});
      inputs[1] = Ramp(Shape{c.batch, out, side, side}, 0.2f);
    }
    const std::string last = c.has_sum ? "s" : "c";
    model.Node(*c.activation != 0 ? c.activation : "Identity", {last}, {"y"}).Output("y");
    for (const int threads : {1, 2, 3}) ExpectSameResults(model, inputs, threads);
  }
}

// Elements that differ from tile to tile and from row to row.
Tensor Waves(const Shape& shape, float scale) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * std::sin(static_cast<float>(i) * 0.37f) + 0.1f;
  }
  return tensor;
}

TEST(ElementwiseChain, JoinsOperatorsOfOneShape) {
  TestModel model;
  const SymbolicShape shape = {Dimension::Symbol("rows"), 5, 70};
  model.Input("x", DataType::kFloat, shape).Input("z", DataType::kFloat, shape);
  model.Constant("one", Tensor::Scalar(0.7f)).Constant("row", Waves(Shape{70}, 0.3f));
  model.Constant("plane", Waves(Shape{1, 5, 70}, 0.2f)).Constant("two", Tensor::Scalar(2.0f));
  model.Constant("low", Tensor::Scalar(-0.4f)).Constant("high", Tensor::Scalar(0.5f));
  model.Node("Mul", {"one", "x"}, {"a"}).Node("Add", {"a", "row"}, {"b"});
  model.Node("Sub", {"plane", "b"}, {"c"}).Node("Clip", {"c", "low", "high"}, {"d"});
  model.Node("Pow", {"d", "two"}, {"e"}).Node("Tanh", {"b"}, {"f"}).Node("Div", {"e", "f"}, {"g"});
  model.Node("Add", {"g", "z"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ProviderPass("elementwise_chain"), DeadCodeElimination()}),
            "ElementwiseChain");
  for (const int64_t rows : {1, 2, 29}) {
    for (const int threads : {1, 3}) {
      ExpectSameResults(copy, {Waves(Shape{rows, 5, 70}, 1.0f), Waves(Shape{rows, 5, 70}, 0.5f)},
                        threads);
    }
  }
}

TEST(ElementwiseChain, RepeatsOperandsLongerThanATile) {
  TestModel model;
  const SymbolicShape shape = {Dimension::Symbol("batch"), 9, 3, 700};
  model.Input("x", DataType::kFloat, shape);
  model.Constant("row", Waves(Shape{3, 700}, 0.3f)).Constant("all", Waves(Shape{9, 3, 700}, 0.2f));
  model.Constant("short", Waves(Shape{700}, 0.2f)).Node("Add", {"x", "row"}, {"a"});
  model.Node("Mul", {"a", "all"}, {"b"}).Node("Sub", {"b", "short"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ProviderPass("elementwise_chain"), DeadCodeElimination()}),
            "ElementwiseChain");
  for (const int64_t batch : {1, 3}) {
    ExpectSameResults(copy, {Waves(Shape{batch, 9, 3, 700}, 1.0f)}, 2);
  }
}

TEST(ElementwiseChain, LeavesWhatOthersReadAndWhatBroadcastsOtherwise) {
  TestModel model;
  model.Input("x", DataType::kFloat, {4, 6}).Constant("column", Waves(Shape{4, 1}, 0.3f));
  model.Node("Exp", {"x"}, {"a"}).Node("Add", {"a", "column"}, {"b"}).Node("Tanh", {"b"}, {"c"});
  model.Node("Neg", {"c"}, {"y"}).Output("y").Output("c");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ProviderPass("elementwise_chain"), DeadCodeElimination()}),
            "Exp Add Tanh Neg");
  ExpectSameResults(copy, {Waves(Shape{4, 6}, 1.0f)});
}

TEST(ElementwiseChain, RefusesAttributesThatPassesNeverWrite) {
  const auto chain = [](std::vector<std::string> operations, std::vector<int64_t> operands,
                        std::vector<float> bounds) {
    TestModel model;
    Attributes attributes;
    attributes.Set("operations", std::move(operations));
    attributes.Set("operands", std::move(operands));
    attributes.Set("bounds", std::move(bounds));
    model.Input("x", DataType::kFloat, {4}).Input("z", DataType::kFloat, {2, 1});
    model.Node("ElementwiseChain", {"x", "z"}, {"y"}, attributes, "onnxd").Output("y");
    const auto session = model.Load();
    if (!session.ok()) return session.status();
    return (*session)
        ->Run(std::vector<Value>{Waves(Shape{4}, 1), Waves(Shape{2, 1}, 1)}, {})
        .status();
  };
  EXPECT_FALSE(chain({"Add"}, {0, 2}, {0, 0}).ok());  // a result that is not there yet
  EXPECT_FALSE(chain({"Add"}, {0, -1}, {0, 0}).ok());
  EXPECT_FALSE(chain({"Add"}, {0}, {0, 0}).ok());
  EXPECT_FALSE(chain({"Add"}, {0, 0}, {}).ok());
  EXPECT_FALSE(chain({"Launch"}, {0, 0}, {0, 0}).ok());
  EXPECT_FALSE(chain({}, {}, {}).ok());
  EXPECT_FALSE(chain({"Add"}, {0, 1}, {0, 0}).ok());  // shapes that do not repeat
}

}  // namespace
}  // namespace onnxd
