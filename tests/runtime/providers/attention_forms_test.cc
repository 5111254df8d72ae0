// Attention as networks for images and with several masks write it: what comes turned, numbers for
// heads, sums of masks.
#include <cmath>
#include <limits>

#include "runtime/fusion/attention.h"
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/fused_testing.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

std::string AfterFusion(TestModel model) {
  return After(model, {AttentionFusion(false), DeadCodeElimination()});
}

void ExpectSameEverywhere(const TestModel& model, const std::vector<Value>& inputs) {
  ExpectSameResults(model, inputs, 2);
  ExpectSameOnDevice(model, inputs, true);
}

// As YOLO's attention over the pixels of an image has it: [batch, heads, channels, pixels].
TestModel OfPixels(int64_t size, int64_t pixels, bool joined) {
  TestModel model(18);
  model.Input("qkv", DataType::kFloat, {Dimension::Symbol("batch"), 2, 3 * size, pixels});
  model.Constant("parts", Tensor::Of<int64_t>(Shape{3}, {size, size, size}));
  model.Constant("scale", Tensor::Scalar(0.6f));
  model.Node("Split", {"qkv", "parts"}, {"q", "k", "v"}, Axis(2));
  model.Node("Mul", {"q", "scale"}, {"q1"}).Node("Transpose", {"q1"}, {"q2"}, Order({0, 1, 3, 2}));
  model.Node("MatMul", {"q2", "k"}, {"s"}).Node("Softmax", {"s"}, {"p"}, Axis(-1));
  model.Node("Transpose", {"p"}, {"t"}, Order({0, 1, 3, 2})).Node("MatMul", {"v", "t"}, {"y"});
  if (!joined) return model.Output("y");
  return model.Node("Transpose", {"y"}, {"z"}, Order({0, 3, 1, 2})).Output("z");
}

TEST(AttentionForms, ValuesAndWeightsMayBeTheOtherWayRound) {
  const std::string operands = "Split Transpose Transpose Transpose FusedAttention";
  for (const int64_t pixels : {9, 64}) {
    const std::vector<Value> inputs = {Sines(Shape{2, 2, 24, pixels}, 1)};
    const TestModel apart = OfPixels(8, pixels, false), joined = OfPixels(8, pixels, true);
    EXPECT_EQ(AfterFusion(apart), operands + " Transpose");
    EXPECT_EQ(AfterFusion(joined), operands);
    ExpectSameEverywhere(apart, inputs);
    ExpectSameEverywhere(joined, inputs);
  }
}

// Turning them would cost more than the scores do.
TEST(AttentionForms, FewPixelsOfManyChannelsStayProducts) {
  const TestModel model = OfPixels(8, 7, false);
  EXPECT_EQ(AfterFusion(model), "Split Mul Transpose MatMul Softmax Transpose MatMul");
  ExpectSameEverywhere(model, {Sines(Shape{2, 2, 24, 7}, 1)});
}

// Swin v2: cosines, times a number for each head, and a bias.
TestModel OfCosines(const Shape& numbers, int64_t keys) {
  TestModel model(18);
  const Dimension batch = Dimension::Symbol("batch");
  model.Input("q", DataType::kFloat, {batch, 6, 3, 8});
  model.Input("k", DataType::kFloat, {batch, 3, 8, keys});
  model.Input("v", DataType::kFloat, {batch, 3, keys, 8});
  model.Constant("numbers", Sines(numbers, 3)).Constant("bias", Sines(Shape{1, 3, 6, keys}, 2));
  model.Node("Transpose", {"q"}, {"q1"}, Order({0, 2, 1, 3})).Node("MatMul", {"q1", "k"}, {"s"});
  model.Node("Mul", {"s", "numbers"}, {"m"}).Node("Add", {"m", "bias"}, {"b"});
  model.Node("Softmax", {"b"}, {"p"}, Axis(-1)).Node("MatMul", {"p", "v"}, {"y"});
  return model.Output("y");
}

TEST(AttentionForms, NumbersForHeadsMultiplyQueries) {
  TestModel model = OfCosines(Shape{3, 1, 1}, 9);
  // Six queries are fewer than the eight numbers of a key: keys must come as attention has them.
  EXPECT_EQ(AfterFusion(model), "Transpose MatMul Mul Add Softmax MatMul");
  for (const Shape& numbers : {Shape{3, 1, 1}, Shape{1, 3, 1, 1}}) {
    TestModel turned(18);
    const Dimension batch = Dimension::Symbol("batch");
    for (const char* name : {"q", "k", "v"}) {
      turned.Input(name, DataType::kFloat, {batch, name[0] == 'q' ? 6 : 9, 3, 8});
    }
    turned.Constant("numbers", Sines(numbers, 3)).Constant("bias", Sines(Shape{1, 3, 6, 9}, 2));
    turned.Node("Transpose", {"q"}, {"q1"}, Order({0, 2, 1, 3}));
    turned.Node("Transpose", {"k"}, {"k1"}, Order({0, 2, 3, 1}));
    turned.Node("Transpose", {"v"}, {"v1"}, Order({0, 2, 1, 3}))
        .Node("MatMul", {"q1", "k1"}, {"s"});
    turned.Node("Mul", {"numbers", "s"}, {"m"}).Node("Add", {"m", "bias"}, {"b"});
    turned.Node("Softmax", {"b"}, {"p"}, Axis(-1)).Node("MatMul", {"p", "v1"}, {"y"}).Output("y");
    EXPECT_EQ(AfterFusion(turned), "Transpose Mul FusedAttention");
    ExpectSameEverywhere(turned, {Sines(Shape{2, 6, 3, 8}, 1), Sines(Shape{2, 9, 3, 8}, 0.7f),
                                  Sines(Shape{2, 9, 3, 8}, 0.9f)});
  }
}

// A factor before the transposition is the attention's, too.
TEST(AttentionForms, NumbersForHeadsMultiplyQueriesThatAreTurned) {
  TestModel model(18);
  model.Input("q", DataType::kFloat, {2, 3, 8, 9}).Input("k", DataType::kFloat, {2, 3, 9, 8});
  model.Constant("scale", Tensor::Scalar(0.6f)).Constant("numbers", Sines(Shape{3, 1, 1}, 3));
  model.Node("Mul", {"q", "scale"}, {"q1"}).Node("Transpose", {"q1"}, {"q2"}, Order({0, 1, 3, 2}));
  model.Node("Transpose", {"k"}, {"k1"}, Order({0, 1, 3, 2})).Node("MatMul", {"q2", "k1"}, {"s"});
  model.Node("Mul", {"s", "numbers"}, {"m"}).Node("Softmax", {"m"}, {"p"}, Axis(-1));
  model.Node("MatMul", {"p", "k"}, {"y"}).Output("y");
  EXPECT_EQ(AfterFusion(model), "Transpose Mul FusedAttention");
  ExpectSameEverywhere(model, {Sines(Shape{2, 3, 8, 9}, 1), Sines(Shape{2, 3, 9, 8}, 0.7f)});
}

TEST(AttentionForms, NumbersForQueriesAreNone) {
  const TestModel model = OfCosines(Shape{3, 6, 1}, 9);
  EXPECT_EQ(AfterFusion(model), "Transpose MatMul Mul Add Softmax MatMul");
}

// MPNet: a bias by distance and a mask of the keys, the same in all layers.
TEST(AttentionForms, LayersShareTheSumOfTwoMasks) {
  TestModel model(18);
  const SymbolicShape rows = {Dimension::Symbol("batch"), 2, 7, 4};
  model.Input("x", DataType::kFloat, rows).Input("keys", DataType::kFloat, {rows[0], 1, 1, 7});
  model.Input("bias", DataType::kFloat, {1, 2, 7, 7}).Constant("root", Tensor::Scalar(2.0f));
  for (const std::string from : {"x", "y0"}) {
    const std::string n = from == "x" ? "0" : "1";
    model.Node("Transpose", {from}, {"t" + n}, Order({0, 1, 3, 2}));
    model.Node("MatMul", {from, "t" + n}, {"s" + n}).Node("Div", {"s" + n, "root"}, {"d" + n});
    model.Node("Add", {"d" + n, "bias"}, {"b" + n}).Node("Add", {"b" + n, "keys"}, {"m" + n});
    model.Node("Softmax", {"m" + n}, {"p" + n}, Axis(-1));
    model.Node("MatMul", {"p" + n, from}, {"y" + n});
  }
  model.Output("y1");
  EXPECT_EQ(AfterFusion(model), "Add FusedAttention FusedAttention");
  ExpectSameEverywhere(model, {Sines(Shape{3, 2, 7, 4}, 1), Sines(Shape{3, 1, 1, 7}, 2),
                               Sines(Shape{1, 2, 7, 7}, 1)});
}

// Where instead of a mask: of what stays, or of what goes, and how low that becomes.
TestModel OfChoices(bool of_what_stays, float low, int layers = 1) {
  TestModel model(18);
  const Dimension batch = Dimension::Symbol("batch");
  model.Input("x", DataType::kFloat, {batch, 2, 5, 4}).Constant("low", Tensor::Scalar(low));
  model.Input("condition", DataType::kBool, {batch, 1, 5, 5});
  std::string from = "x";
  for (int layer = 0; layer < layers; ++layer) {
    const std::string n = std::to_string(layer);
    model.Node("Transpose", {from}, {"t" + n}, Order({0, 1, 3, 2}));
    model.Node("MatMul", {from, "t" + n}, {"s" + n});
    const std::string scores = "s" + n, a = of_what_stays ? scores : "low";
    model.Node("Where", {"condition", a, of_what_stays ? "low" : scores}, {"c" + n});
    model.Node("Softmax", {"c" + n}, {"p" + n}, Axis(-1));
    model.Node("MatMul", {"p" + n, from}, {"y" + n});
    from = "y" + n;
  }
  return model.Output(from);
}

// Of which only the first query has no key.
Tensor Choices(bool of_what_stays) {
  Tensor tensor = Tensor::Create(DataType::kBool, Shape{2, 1, 5, 5}).value();
  bool* choices = tensor.mutable_data<bool>();
  for (int i = 0; i < 50; ++i) choices[i] = (i % 3 == 0 && i > 4) == of_what_stays;
  return tensor;
}

Tensor OneKeyAtLeast() {
  Tensor tensor = *Tensor::Create(DataType::kBool, Shape{5, 5});
  for (int i = 0; i < 25; ++i) tensor.mutable_data<bool>()[i] = i % 3 != 0;
  return tensor;
}

TEST(AttentionForms, ConditionsChooseScores) {
  for (const bool of_what_stays : {false, true}) {
    for (const float low : {-1e9f, std::numeric_limits<float>::lowest()}) {
      const TestModel model = OfChoices(of_what_stays, low);
      EXPECT_EQ(AfterFusion(model), "Where FusedAttention");
      ExpectSameEverywhere(model, {Sines(Shape{2, 2, 5, 4}, 1), Choices(of_what_stays)});
    }
  }
}

TEST(AttentionForms, LayersShareWhatConditionsAdd) {
  EXPECT_EQ(AfterFusion(OfChoices(true, -1e9f, 2)), "Where FusedAttention FusedAttention");
}

// Of a query without any key the weights would be others.
TEST(AttentionForms, ConditionsStandAlone) {
  for (const float low : {-1e9f, -std::numeric_limits<float>::infinity()}) {
    TestModel model(18);
    model.Input("x", DataType::kFloat, {2, 5, 4}).Constant("low", Tensor::Scalar(low));
    model.Input("condition", DataType::kBool, {5, 5}).Input("mask", DataType::kFloat, {5, 5});
    model.Node("Transpose", {"x"}, {"t"}, Order({0, 2, 1})).Node("MatMul", {"x", "t"}, {"s"});
    model.Node("Add", {"s", "mask"}, {"m"}).Node("Where", {"condition", "m", "low"}, {"c"});
    model.Node("Softmax", {"c"}, {"p"}, Axis(-1)).Node("MatMul", {"p", "x"}, {"y"}).Output("y");
    EXPECT_EQ(AfterFusion(model), std::isinf(low) ? "Where Add FusedAttention"
                                                  : "Transpose MatMul Add Where Softmax MatMul");
    ExpectSameEverywhere(model, {Sines(Shape{2, 5, 4}, 1), OneKeyAtLeast(), Sines(Shape{5, 5}, 2)});
  }
}

// GPT-2's -10000 is not below all that scores may be.
TEST(AttentionForms, NumbersThatScoresMayReachStay) {
  EXPECT_EQ(AfterFusion(OfChoices(true, -1e4f)), "Transpose MatMul Where Softmax MatMul");
}

}  // namespace
}  // namespace onnxd
