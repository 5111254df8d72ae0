// The CPU provider's passes: the graph before and after, and the same results.
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/optimizer/pass_manager.h"
#include "runtime/optimizer/passes/passes.h"
#include "runtime/tensor/convert.h"
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

// As PyTorch's exporter by torch.export writes scaled_dot_product_attention.
TestModel FlatKeysModel(const std::vector<int64_t>& merged, const std::vector<int64_t>& apart) {
  TestModel model;
  const Dimension batch = Dimension::Symbol("batch");
  for (const char* name : {"q", "k", "v"}) {
    const int64_t rows = name[0] == 'q' ? 5 : 7;
    model.Input(name, DataType::kFloat, {batch, 2, rows, 4});
  }
  const auto list = [](const std::vector<int64_t>& shape) {
    return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(shape.size())}, shape);
  };
  model.Constant("merged", list(merged)).Constant("apart", list(apart));
  model.Constant("root", Floats(Shape{}, {0.7f}));
  model.Node("Reshape", {"k", "merged"}, {"k1"})
      .Node("Transpose", {"k1"}, {"k2"}, Order({0, 2, 1}));
  model.Node("Reshape", {"k2", "apart"}, {"k3"}).Node("Mul", {"k3", "root"}, {"k4"});
  model.Node("Mul", {"q", "root"}, {"q1"}).Node("MatMul", {"q1", "k4"}, {"s"});
  model.Node("Softmax", {"s"}, {"p"}, [] {
    Attributes last;
    last.Set("axis", int64_t{-1});
    return last;
  }());
  model.Node("MatMul", {"p", "v"}, {"y"}).Output("y");
  return model;
}

TEST(AttentionFusion, TakesKeysWhoseLeadingAxesAreOneMeanwhile) {
  TestModel model = FlatKeysModel({-1, 7, 4}, {-1, 2, 4, 7}), copy = model;
  EXPECT_TRUE(After(model, ProviderPass("attention")).ends_with(" FusedAttention"));
  ExpectSameResults(copy, {Ramp(Shape{3, 2, 5, 4}, 0.31f), Ramp(Shape{3, 2, 7, 4}, 0.23f),
                           Ramp(Shape{3, 2, 7, 4}, 0.17f)});
}

TEST(AttentionFusion, TurnsKeysThatArePartedOtherwise) {
  // Heads and batch change places; head size and keys do before they are transposed.
  for (const auto& [merged, apart] :
       {std::pair{std::vector<int64_t>{-1, 7, 4}, std::vector<int64_t>{2, -1, 4, 7}},
        std::pair{std::vector<int64_t>{-1, 4, 7}, std::vector<int64_t>{-1, 2, 4, 7}}}) {
    TestModel model = FlatKeysModel(merged, apart), copy = model;
    EXPECT_TRUE(After(model, ProviderPass("attention")).ends_with(" Transpose FusedAttention"));
    ExpectSameResults(copy, {Ramp(Shape{2, 2, 5, 4}, 0.31f), Ramp(Shape{2, 2, 7, 4}, 0.23f),
                             Ramp(Shape{2, 2, 7, 4}, 0.17f)});
  }
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

TEST_F(MatMulEpilogue, OneOfTwoProductsTakesTheirSumAndItsActivation) {
  model_.Node("MatMul", {"x", "w"}, {"other"}).Node("Add", {"p", "other"}, {"q"});
  model_.Node("Relu", {"q"}, {"y"}).Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_), "MatMul MatMulBiasActivation");
  ExpectSameResults(copy, {Ramp(Shape{2, 128}, 0.1f), Ramp(Shape{2, 129}, 0.3f)});
}

TEST_F(MatMulEpilogue, LeavesAProductThatOthersRead) {
  model_.Node("Relu", {"p"}, {"y"}).Output("y").Output("p");
  EXPECT_EQ(After(model_, pass_), "MatMul Relu");
}

TestModel GateModel(int64_t opset = 17) {
  TestModel model(opset);
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  model.Input("x", DataType::kFloat, {1, 3, 6, 6}).Constant("w", Ramp(Shape{4, 3, 3, 3}, 0.1f));
  model.Node("Conv", {"x", "w"}, {"c"}, pads);
  return model;
}

TEST(CpuConvActivation, SeesSiluInAProductWithItsSigmoid) {
  TestModel model = GateModel();
  model.Node("Sigmoid", {"c"}, {"s"}).Node("Mul", {"s", "c"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ProviderPass("cpu_conv_activation")), "FusedConv");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 6}, 0.5f)});
}

TEST(CpuConvActivation, TakesWhatOneNodeComputes) {
  Attributes tanh;
  tanh.Set("approximate", std::string("tanh"));
  const struct {
    const char *op, *domain, *name;
    Attributes attributes;
  } cases[] = {{"HardSwish", "", "HardSwish", {}},
               {"Gelu", "", "Gelu", {}},
               {"Gelu", "", "FastGelu", tanh},
               {"Gelu", "com.microsoft", "Gelu", {}},
               {"FastGelu", "com.microsoft", "FastGelu", {}},
               {"Swish", "", "Silu", {}}};
  for (const auto& c : cases) {
    TestModel model = GateModel(24);
    model.Node(c.op, {"c"}, {"y"}, c.attributes, c.domain).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, ProviderPass("cpu_conv_activation")), "FusedConv") << c.op;
    EXPECT_EQ(model.graph().nodes[0].attributes.String("activation", ""), c.name);
    ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 6}, 0.5f)});
  }
}

TEST(CpuConvActivation, LeavesAnActivationOfTwo) {
  TestModel model = GateModel();
  model.Constant("b", Ramp(Shape{6}, 1));
  model.Node("FastGelu", {"c", "b"}, {"y"}, {}, "com.microsoft").Output("y");
  EXPECT_EQ(After(model, ProviderPass("cpu_conv_activation")), "Conv FastGelu");
}

TEST(CpuConvActivation, LeavesASwishOfAnotherSlope) {
  TestModel model = GateModel(24);
  Attributes alpha;
  alpha.Set("alpha", 2.0f);
  model.Node("Swish", {"c"}, {"y"}, alpha).Output("y");
  EXPECT_EQ(After(model, ProviderPass("cpu_conv_activation")), "Conv Swish");
}

Tensor Codes(const Shape& shape) {
  Tensor codes = *Tensor::Create(DataType::kInt8, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    codes.mutable_data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  }
  return codes;
}

Attributes ToFloat() {
  Attributes attributes;
  attributes.Set("to", static_cast<int64_t>(DataType::kFloat));
  return attributes;
}

TEST(WeightCasts, AreDequantizedAtLoad) {
  for (const Shape& scales : {Shape{1, 1}, Shape{1, 40}, Shape{30, 1}}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 30}).Constant("codes", Codes(Shape{30, 40}));
    model.Constant("scales", Ramp(scales, 0.01f));
    model.Node("Cast", {"codes"}, {"floats"}, ToFloat()).Node("Mul", {"floats", "scales"}, {"w"});
    model.Node("MatMul", {"x", "w"}, {"y"}).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, {ProviderPass("weight_casts"), DeadCodeElimination()}),
              "DequantizeLinear MatMul");
    ExpectSameResults(copy, {Ramp(Shape{2, 30}, 0.1f)}, 1, 1e-4f);
  }
}

TEST(WeightCasts, OfATableAreThoseOfTheRowsThatAreTaken) {
  for (const Shape& scales : {Shape{30, 1}, Shape{1, 1}}) {
    TestModel model;
    model.Input("rows", DataType::kInt64, {2, 3}).Constant("codes", Codes(Shape{30, 40}));
    model.Constant("scales", Ramp(scales, 0.01f));
    model.Node("Cast", {"codes"}, {"floats"}, ToFloat()).Node("Mul", {"scales", "floats"}, {"w"});
    model.Node("Gather", {"w", "rows"}, {"y"}).Output("y");
    TestModel copy = model;
    const auto after = After(model, {ProviderPass("weight_casts"),
                                     ProviderPass("dequantize_folding"), DeadCodeElimination()});
    EXPECT_EQ(after, scales[0] == 1 ? "Gather DequantizeLinear" : "Gather Cast Gather Mul");
    ExpectSameResults(copy, {Tensor::Of<int64_t>(Shape{2, 3}, {0, 29, 7, 7, 1, -1})});
  }
}

TEST(WeightCasts, OfHalfPrecisionAreMadeOnce) {
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16, DataType::kInt8}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 30}).Input("rows", DataType::kInt64, {2, 3});
    model.Constant("narrow", *Converted(Ramp(Shape{30, 40}, 0.5f), type));
    model.Node("Cast", {"narrow"}, {"w"}, ToFloat()).Node("MatMul", {"x", "w"}, {"y"});
    model.Node("Gather", {"w", "rows"}, {"z"}).Output("y").Output("z");
    TestModel copy = model;
    EXPECT_EQ(After(model, {ProviderPass("weight_casts"), IdentityElimination()}),
              "MatMul Gather Cast");
    ExpectSameResults(
        copy, {Ramp(Shape{2, 30}, 0.1f), Tensor::Of<int64_t>(Shape{2, 3}, {0, 29, 7, 7, 1, -1})});
  }
}

TEST(WeightCasts, KeepAProductWhoseScalesDifferAlongTwoAxes) {
  TestModel model;
  model.Constant("codes", Codes(Shape{3, 4})).Constant("scales", Ramp(Shape{3, 4}, 0.01f));
  model.Node("Cast", {"codes"}, {"floats"}, ToFloat()).Node("Mul", {"floats", "scales"}, {"y"});
  model.Output("y");
  EXPECT_EQ(After(model, ProviderPass("weight_casts")), "Identity Mul");
}

TEST(WeightCasts, KeepAProductOfOneNumber) {
  TestModel model;
  model.Constant("codes", Codes(Shape{})).Constant("scale", Floats(Shape{}, {0.5f}));
  model.Node("Cast", {"codes"}, {"floats"}, ToFloat()).Node("Mul", {"floats", "scale"}, {"y"});
  model.Output("y");
  EXPECT_EQ(After(model, ProviderPass("weight_casts")), "Identity Mul");
}

TEST(HardSwish, IsAProductWithItsHardSigmoid) {
  for (const float alpha : {1.0f / 6, 0.2f}) {
    TestModel model{13};
    Attributes gate;
    gate.Set("alpha", alpha);
    model.Input("x", DataType::kFloat, {2, 9}).Node("HardSigmoid", {"x"}, {"g"}, gate);
    model.Node("Mul", {"g", "x"}, {"y"}).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, {ProviderPass("hard_swish"), DeadCodeElimination()}),
              alpha == 0.2f ? "HardSigmoid Mul" : "HardSwish");
    ExpectSameResults(copy, {Ramp(Shape{2, 9}, 0.9f)});
  }
}

TEST(CpuConvActivation, LeavesASigmoidThatOthersRead) {
  TestModel model = GateModel();
  model.Node("Sigmoid", {"c"}, {"s"}).Node("Mul", {"s", "c"}, {"y"}).Output("y").Output("s");
  EXPECT_EQ(After(model, ProviderPass("cpu_conv_activation")), "Conv Sigmoid Mul");
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
  const auto convolve = [](const char* op, const Shape& weights, const char* attribute,
                           int64_t value) {
    TestModel model;
    Attributes of;
    if (attribute != nullptr)
      of.Set(attribute, std::vector<int64_t>(attribute[0] == 's' ? 2 : 4, value));
    model.Input("x", DataType::kFloat, {1, 4, 4, 4}).Input("g", DataType::kFloat, {1, 1, 1, 4});
    model.Constant("w", Ramp(weights, 0.1f));
    std::vector<std::string> inputs = {"x", "w"};
    if (op == std::string("GatedConv")) inputs.insert(inputs.end(), {"", "", "g"});
    model.Node(op, inputs, {"y"}, of, "onnxd").Output("y");
    return model.Load().ok();
  };
  constexpr int64_t kHuge = int64_t{1} << 61;
  EXPECT_TRUE(convolve("GatedConv", Shape{6, 4, 1, 1}, nullptr, 0));
  EXPECT_FALSE(convolve("GatedConv", Shape{6, 4, 1, 1}, "strides", 2));
  EXPECT_FALSE(convolve("GatedConv", Shape{6, 4, 1, 1}, "pads", 1));
  EXPECT_FALSE(convolve("GatedConv", Shape{6, 4, 2, 2}, nullptr, 0));
  EXPECT_TRUE(convolve("PlanarConv", Shape{6, 4, 3, 3}, nullptr, 0));
  EXPECT_FALSE(convolve("PlanarConv", Shape{6, 4, 3, 3}, "strides", kHuge));
  EXPECT_FALSE(convolve("PlanarConv", Shape{6, 4, 3, 3}, "pads", kHuge));
  EXPECT_FALSE(convolve("PlanarConv", Shape{0, 4, 3, 3}, nullptr, 0));
  TestModel flat;
  flat.Input("x", DataType::kFloat, {1, 8, 8, 4}).Constant("e", Ramp(Shape{6, 4, 1, 1}, 0.1f));
  flat.Constant("w", Ramp(Shape{6, 1, 3, 3}, 0.1f)).Constant("p", Ramp(Shape{2, 6}, 0.1f));
  flat.Node("ExpandDepthwise", {"x", "e", "", "w", "", "p"}, {"y"}, {}, "onnxd").Output("y");
  EXPECT_FALSE(flat.Load().ok());
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
