// Each pass: the graph before and after, and the same results.
#include "runtime/optimizer/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

TEST(IdentityElimination, RemovesIdentityAndKeepsOutputNames) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Node("Relu", {"x"}, {"a"});
  model.Node("Identity", {"a"}, {"b"}).Node("Identity", {"b"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, IdentityElimination()), "Relu");
  EXPECT_EQ(model.graph().value(model.graph().outputs[0]).name, "y");
  ExpectSameResults(copy, {Floats(Shape{2}, {-1, 2})});
}

TEST(IdentityElimination, KeepsWhatIsTheOnlyProducerOfAnOutput) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Node("Identity", {"x"}, {"y"}).Output("y");
  model.Node("Identity", {"x"}, {"z"}).Output("z");
  TestModel copy = model;
  EXPECT_EQ(After(model, IdentityElimination()), "Identity Identity");
  ExpectSameResults(copy, {Floats(Shape{2}, {-1, 2})});
}

// One slice of x[batch, 3, 2], whose end is that of an exporter.
TestModel SliceModel(int64_t start, int64_t end, int64_t step) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 3, 1 << 16});
  model.Constant("starts", Ints(Shape{2}, {start, 0})).Constant("ends", Ints(Shape{2}, {end, 3}));
  model.Constant("axes", Ints(Shape{2}, {0, 1})).Constant("steps", Ints(Shape{2}, {step, 1}));
  model.Node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"s"});
  model.Node("Relu", {"s"}, {"y"}).Output("y");
  return model;
}

TEST(IdentityElimination, RemovesSlicesOfEverything) {
  constexpr int64_t kEnd = std::numeric_limits<int32_t>::max(), kKeras = 1'000'000'000;
  for (const int64_t end : {kEnd, kKeras}) {
    TestModel model = SliceModel(0, end, 1);
    TestModel copy = model;
    EXPECT_EQ(After(model, IdentityElimination()), "Relu");
    ExpectSameResults(copy, {Ramp(Shape{2, 3, 1 << 16}, 0.5f)});
  }
  for (TestModel model : {SliceModel(1, kEnd, 1), SliceModel(0, 1'000, 1), SliceModel(0, kEnd, 2),
                          SliceModel(-2, kEnd, 1)}) {
    EXPECT_EQ(After(model, IdentityElimination()), "Slice Relu");
  }
}

TEST(IdentityElimination, DoesNotBelieveDimensionsThatAFileCallsAlike) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n")});
  model.Constant("starts", Ints(Shape{1}, {1})).Constant("ends", Ints(Shape{1}, {1'000}));
  model.Node("Slice", {"x", "starts", "ends"}, {"s"}).Node("Relu", {"s"}, {"y"}).Output("y");
  model.graph().value(model.graph().FindValue("s")).type.shape = {Dimension::Symbol("n")};
  EXPECT_EQ(After(model, IdentityElimination()), "Slice Relu");
}

TEST(IdentityElimination, RemovesDropoutWhoseMaskNobodyReads) {
  for (const bool read : {false, true}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2}).Node("Relu", {"x"}, {"a"});
    model.Node("Dropout", {"a"}, {"b", "mask"}).Node("Exp", {"b"}, {"y"}).Output("y");
    if (read) model.Output("mask");
    EXPECT_EQ(After(model, IdentityElimination()), read ? "Relu Dropout Exp" : "Relu Exp");
  }
}

TEST(ConstantFolding, ComputesWhatIsConstant) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Constant("a", Floats(Shape{2}, {1, 2}));
  model.Constant("b", Floats(Shape{2}, {3, 4})).Node("Add", {"a", "b"}, {"c"});
  model.Node("Mul", {"x", "c"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConstantFolding()), "Mul");
  ExpectSameResults(copy, {Floats(Shape{2}, {5, 6})});
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

// What it would not keep it does not compute, in no round.
TEST(ConstantFolding, DoesNotComputeWhatWouldWidenWeights) {
  TestModel model;
  Tensor codes = *Tensor::Create(DataType::kInt8, Shape{1024, 512});
  std::fill_n(codes.mutable_data<int8_t>(), codes.ElementCount(), int8_t{1});
  model.Constant("codes", codes);
  Attributes to_float;
  to_float.Set("to", static_cast<int64_t>(DataType::kFloat));
  model.Node("Cast", {"codes"}, {"floats"}, to_float).Output("floats");
  ASSERT_TRUE(InferGraph(model.graph()).ok());
  int calls = 0;
  PassContext context;
  context.evaluate = [&](const Node&, const std::vector<Tensor>&) {
    ++calls;
    return std::optional<std::vector<Tensor>>();
  };
  ASSERT_TRUE(RunPasses({ConstantFolding()}, OptimizationLevel::kAll, model.graph(), context).ok());
  EXPECT_EQ(calls, 0);
}

TEST(DeadCodeElimination, RemovesWhatNothingUses) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Constant("unused", Floats(Shape{1}, {1}));
  model.Node("Relu", {"x"}, {"y"}).Node("Exp", {"x"}, {"dead"}).Node("Log", {"dead"}, {"deader"});
  model.Output("y");
  EXPECT_EQ(After(model, DeadCodeElimination()), "Relu");
  EXPECT_TRUE(model.graph().initializers.empty());
}

// x: [batch, 6, 8] to [6 * batch, 8] and back, by what is computed of its shape.
TEST(ReshapeTargetFolding, KeepsWhatStaysAndLeavesOneExtentOpen) {
  TestModel model;
  Attributes axis;
  axis.Set("axis", int64_t{0});
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 6, 8});
  model.Constant("two", Ints(Shape{2}, {0, 1})).Constant("eight", Ints(Shape{1}, {8}));
  model.Node("Shape", {"x"}, {"shape"}).Node("Gather", {"shape", "two"}, {"pair"});
  model.Node("ReduceProd", {"pair"}, {"rows"}).Node("Concat", {"rows", "eight"}, {"target"}, axis);
  model.Node("Reshape", {"x", "target"}, {"a"}).Node("Relu", {"a"}, {"b"});
  model.Node("Reshape", {"b", "shape"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ReshapeTargetFolding(), DeadCodeElimination()}), "Reshape Relu Reshape");
  for (const int64_t batch : {1, 3}) ExpectSameResults(copy, {Ramp(Shape{batch, 6, 8}, 0.5f)});
}

TEST(ReshapeTargetFolding, LeavesTwoOpenExtents) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), Dimension::Symbol("m"), 6});
  model.Input("like", DataType::kFloat, {Dimension::Symbol("m"), Dimension::Symbol("n"), 6});
  model.Node("Shape", {"like"}, {"shape"}).Node("Reshape", {"x", "shape"}, {"y"}).Output("y");
  EXPECT_EQ(After(model, ReshapeTargetFolding()), "Shape Reshape");
}

TEST(ShapeFolding, ComputesWhatOnlyKnownDimensionsDecide) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 3, 4});
  model.Constant("axes", Ints(Shape{2}, {1, 2})).Node("Shape", {"x"}, {"shape"});
  model.Node("Gather", {"shape", "axes"}, {"sizes"});
  model.Node("ConstantOfShape", {"sizes"}, {"zeros"}).Node("Add", {"x", "zeros"}, {"y"});
  model.Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ShapeFolding()), "Shape ConstantOfShape Add");
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 4}, 0.5f)});
}

// A Loop that adds what it carries as it is to what it changes.
TestModel LoopWithInvariant() {
  TestModel model(20);
  model.Input("trips", DataType::kInt64, SymbolicShape{}).Input("x", DataType::kFloat, {2});
  model.Constant("go", Tensor::Scalar(true)).Constant("step", Floats(Shape{2}, {1, -2}));
  auto body = std::make_shared<Graph>();
  const auto input = [&](const char* name, DataType type) {
    body->inputs.push_back(body->AddValue(name, ValueType::TensorOf(type)));
    return body->inputs.back();
  };
  input("i", DataType::kInt64);
  const ValueId condition = input("condition", DataType::kBool);
  const ValueId same = input("same", DataType::kFloat), sum = input("sum", DataType::kFloat);
  Node node;
  node.op_type = "Add";
  node.since_version = 14;
  node.inputs = {sum, same};
  node.outputs = {body->AddValue("next")};
  body->outputs = {condition, same, node.outputs[0]};
  body->nodes.push_back(node);
  Attributes attributes;
  attributes.Set("body", std::move(body));
  model.Node("Loop", {"trips", "go", "step", "x"}, {"given", "last"}, attributes);
  model.Node("Mul", {"given", "last"}, {"y"}).Output("y");
  return model;
}

TEST(LoopInvariants, AreCaptured) {
  TestModel model = LoopWithInvariant();
  EXPECT_EQ(After(model, LoopInvariants()), "Loop Mul");
  const Node& loop = model.graph().nodes[0];
  EXPECT_EQ(loop.inputs.size(), 3u);
  EXPECT_EQ(loop.outputs.size(), 1u);
  EXPECT_EQ(loop.captures, std::vector<ValueId>{model.graph().FindValue("step")});
  EXPECT_EQ(loop.attributes.Subgraph("body")->inputs.size(), 3u);
  for (const auto level : {OptimizationLevel::kDisable, OptimizationLevel::kAll}) {
    for (const int64_t trips : {0, 3}) {
      const auto session = LoopWithInvariant().Load(level);
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      const std::vector<Value> inputs = {Tensor::Scalar(trips), Floats(Shape{2}, {0.5f, 0.25f})};
      const auto outputs = (*session)->Run(inputs, {});
      ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
      const float* y = (*outputs)[0].tensor().data<float>();
      EXPECT_EQ(y[0], trips == 0 ? 0.5f : 3.5f);
      EXPECT_EQ(y[1], trips == 0 ? -0.5f : 11.5f);
    }
  }
}

TEST(LoopInvariants, StayWhereTheModelReturnsThem) {
  TestModel model = LoopWithInvariant();
  model.Output("given");
  EXPECT_EQ(After(model, LoopInvariants()), "Loop Mul");
  EXPECT_EQ(model.graph().nodes[0].inputs.size(), 4u);
}

// Indices [3, 7, 1] of a row of `depth` numbers, compared with 0, 1, 2, ...
TestModel OneHotByComparison(std::vector<int64_t> counted, int64_t last = 1) {
  TestModel model;
  const auto depth = static_cast<int64_t>(counted.size());
  Attributes to_float;
  to_float.Set("to", int64_t{1});
  model.Input("ids", DataType::kInt64, {3, 7, last});
  model.Constant("counted", Tensor::Of<int64_t>(Shape{1, depth}, counted));
  model.Constant("w", Ramp(Shape{depth, 5}, 0.5f)).Node("Equal", {"counted", "ids"}, {"e"});
  model.Node("Cast", {"e"}, {"hot"}, to_float).Node("MatMul", {"hot", "w"}, {"y"}).Output("y");
  return model;
}

// Some of them below 0 and from `depth` on, which no place stands for.
Tensor Indices(const Shape& shape, int64_t depth) {
  std::vector<int64_t> indices(static_cast<size_t>(shape.ElementCount()));
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = static_cast<int64_t>(i * 7) % (3 * depth + 5) - depth - 2;
  }
  return Tensor::Of<int64_t>(shape, indices);
}

TEST(OneHotProduct, GathersRowsForIndicesThatWereCompared) {
  TestModel model = OneHotByComparison({0, 1, 2, 3});
  TestModel copy = model;
  EXPECT_EQ(After(model, {OneHotProduct(), DeadCodeElimination()}), "Clip Add Squeeze Gather");
  ExpectSameResults(copy, {Indices(Shape{3, 7, 1}, 4)});
}

TEST(OneHotProduct, GathersRowsForTheOperator) {
  TestModel model;
  model.Input("ids", DataType::kInt64, {3, 7}).Constant("depth", Ints(Shape{}, {4}));
  model.Constant("values", Floats(Shape{2}, {0, 1})).Constant("w", Ramp(Shape{4, 5}, 0.5f));
  model.Node("OneHot", {"ids", "depth", "values"}, {"hot"});
  model.Node("MatMul", {"hot", "w"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {OneHotProduct(), DeadCodeElimination()}), "Clip Add Gather");
  ExpectSameResults(copy, {Indices(Shape{3, 7}, 4)});
}

TEST(OneHotProduct, LeavesWhatIsNoneOrHasInfiniteWeights) {
  for (TestModel model : {OneHotByComparison({0, 2, 1, 3}), OneHotByComparison({0, 1, 2, 3}, 4)}) {
    EXPECT_EQ(After(model, OneHotProduct()), "Equal Cast MatMul");
  }
  TestModel infinite = OneHotByComparison({0, 1});
  infinite.graph().initializers.erase(infinite.graph().FindValue("w"));
  infinite.Constant("w2", Floats(Shape{2, 1}, {1, std::numeric_limits<float>::infinity()}));
  infinite.graph().nodes.back().inputs[1] = infinite.graph().FindValue("w2");
  EXPECT_EQ(After(infinite, OneHotProduct()), "Equal Cast MatMul");
}

// A Conv of x[1, 2, 4, 5] with a window of 5 rows and 3 columns, `step` apart.
TestModel DilatedConv(const std::vector<int64_t>& step, const std::vector<int64_t>& pads) {
  TestModel model;
  Attributes attributes;
  attributes.Set("dilations", step);
  attributes.Set("pads", pads);
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 2, 4, 5});
  model.Constant("w", Ramp(Shape{3, 2, 5, 3}, 0.25f));
  return model.Node("Conv", {"x", "w"}, {"y"}, attributes).Output("y");
}

// Pad of x[n, 2, h, 5], and a Conv with a window of 3 x 3 of it.
TestModel PaddedConv(std::vector<int64_t> pads, float value, const Attributes& window) {
  TestModel model;
  model.Input("x", DataType::kFloat,
              {Dimension::Symbol("n"), 2, Dimension::Symbol("h"), Dimension(5)});
  model.Constant("pads", Tensor::Of<int64_t>(Shape{8}, pads));
  model.Constant("value", Floats(Shape{}, {value})).Constant("w", Ramp(Shape{3, 2, 3, 3}, 0.25f));
  model.Node("Pad", {"x", "pads", "value"}, {"p"});
  return model.Node("Conv", {"p", "w"}, {"y"}, window).Output("y");
}

TEST(PadFusion, MakesZerosAroundImagesTheConvolutionsOwn) {
  Attributes strided, padded;
  strided.Set("strides", std::vector<int64_t>{2, 1});
  strided.Set("auto_pad", std::string("VALID"));
  padded.Set("pads", std::vector<int64_t>{1, 1, 0, 2});
  for (const Attributes& window : {Attributes(), strided, padded}) {
    TestModel model = PaddedConv({0, 0, 0, 1, 0, 0, 2, 3}, 0, window);
    TestModel copy = model;
    EXPECT_EQ(After(model, {PadFusion(), DeadCodeElimination()}), "Conv");
    ExpectSameResults(copy, {Ramp(Shape{2, 2, 4, 5}, 0.5f)});
  }
}

TEST(PadFusion, LeavesOtherPadding) {
  Attributes same, none;
  same.Set("auto_pad", std::string("SAME_UPPER"));
  for (TestModel model : {PaddedConv({0, 0, 1, 1, 0, 0, 1, 1}, 0.5f, none),
                          PaddedConv({0, 1, 1, 1, 0, -1, 1, 1}, 0, none),
                          PaddedConv({1, 0, 1, 1, 0, 0, 1, 1}, 0, none),
                          PaddedConv({0, 0, -1, 1, 0, 0, 1, 1}, 0, none),
                          PaddedConv({0, 0, 1, 1, 0, 0, 1, 1}, 0, same)}) {
    EXPECT_EQ(After(model, {PadFusion(), DeadCodeElimination()}), "Pad Conv");
  }
  Attributes reflect;
  reflect.Set("mode", std::string("reflect"));
  TestModel mirrored = PaddedConv({0, 0, 1, 1, 0, 0, 1, 1}, 0, none);
  mirrored.graph().nodes[0].attributes = reflect;
  EXPECT_EQ(After(mirrored, {PadFusion(), DeadCodeElimination()}), "Pad Conv");
}

TEST(IdentityElimination, RemovesPaddingOfNothing) {
  TestModel model = PaddedConv({0, 0, 0, 0, 0, 0, 0, 0}, 1, {});
  TestModel copy = model;
  EXPECT_EQ(After(model, IdentityElimination()), "Conv");
  ExpectSameResults(copy, {Ramp(Shape{2, 2, 4, 5}, 0.5f)});
}

TEST(ConvPaddingCrop, LeavesOutWhatOnlyEverMeetsPadding) {
  const struct {
    std::vector<int64_t> step, pads, kernel;
  } cases[] = {{{3, 1}, {6, 1, 6, 1}, {3, 3}},
               {{4, 9}, {8, 9, 8, 9}, {1, 1}},
               {{3, 1}, {9, 1, 3, 1}, {3, 3}},
               {{1, 1}, {2, 1, 2, 1}, {5, 3}}};
  for (const auto& c : cases) {
    TestModel model = DilatedConv(c.step, c.pads);
    TestModel copy = model;
    EXPECT_EQ(After(model, ConvPaddingCrop()), "Conv");
    const Node& conv = model.graph().nodes[0];
    const Shape& w = model.graph().initializers.at(conv.inputs[1]).shape();
    EXPECT_EQ((std::vector<int64_t>{w[2], w[3]}), c.kernel);
    ExpectSameResults(copy, {Ramp(Shape{2, 2, 4, 5}, 0.5f)});
  }
}

TestModel EinsumModel(const std::string& equation, const Shape& a, const Shape& b) {
  TestModel model;
  Attributes attributes;
  attributes.Set("equation", equation);
  const auto known = [](const Shape& shape) {
    return SymbolicShape(shape.dims().begin(), shape.dims().end());
  };
  const auto symbolic = [&](const Shape& shape) {
    SymbolicShape dimensions = known(shape);
    dimensions[0] = Dimension::Symbol("first");
    return dimensions;
  };
  model.Input("a", DataType::kFloat, symbolic(a)).Input("b", DataType::kFloat, known(b));
  return model.Node("Einsum", {"a", "b"}, {"y"}, attributes).Output("y");
}

TEST(EinsumProduct, MultipliesMatrices) {
  const struct {
    const char* equation;
    Shape a, b;
    const char* operators;
  } cases[] = {
      {"bhid,bhjd->bhij", {2, 3, 4, 5}, {2, 3, 6, 5}, "Transpose MatMul"},
      {"bhij,bhjd->bhid", {2, 3, 4, 5}, {2, 3, 5, 6}, "MatMul"},
      {"bqhd,bkhd->bhqk", {2, 4, 3, 5}, {2, 6, 3, 5}, "Transpose Transpose MatMul"},
      {"bhqk,bkhd->bqhd", {2, 3, 4, 6}, {2, 6, 3, 5}, "Transpose MatMul Transpose"},
      {"...ij,...jk->...ik", {2, 3, 4, 5}, {2, 3, 5, 6}, "MatMul"},
      {"ij,jk->ki", {4, 5}, {5, 6}, "MatMul Transpose"},
      {"binh,tnh->bnit", {2, 4, 3, 5}, {6, 3, 5}, "Transpose Transpose MatMul"},
      {"bind,snd->sbni", {2, 4, 3, 5}, {6, 3, 5}, "Transpose Transpose MatMul Transpose"},
      {"ntd,bnid->bnti", {3, 4, 5}, {2, 3, 6, 5}, "Transpose MatMul"},
      {"btd,dhk->bthk", {2, 4, 6}, {6, 3, 2}, "Reshape MatMul Reshape"},
      {"bthk,hkd->btd", {2, 4, 3, 2}, {3, 2, 6}, "Reshape Reshape MatMul"},
      {"bthk,dkh->tbd", {2, 4, 3, 2}, {6, 2, 3}, "Transpose Reshape Reshape MatMul Transpose"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.equation);
    TestModel model = EinsumModel(c.equation, c.a, c.b);
    TestModel copy = model;
    EXPECT_EQ(After(model, {EinsumProduct(), IdentityElimination()}), c.operators);
    ExpectSameResults(copy, {Ramp(c.a, 0.5f), Ramp(c.b, 0.25f)});
  }
}

TEST(EinsumProduct, LeavesWhatIsNoProductOfMatrices) {
  const struct {
    const char* equation;
    Shape a, b;
  } cases[] = {{"bij,bj->bi", {2, 3, 4}, {2, 4}}, {"ij,kl->ijkl", {2, 3}, {4, 5}},
               {"ijk,jl->il", {2, 3, 4}, {3, 5}}, {"iij,jk->ik", {3, 3, 4}, {4, 5}},
               {"ij,jk->k", {2, 3}, {3, 4}},      {"ij,ij->ij", {2, 3}, {2, 3}},
               {"ij,jk->ik", {2, 3}, {1, 4}},     {"abnk,cdnk->nabcd", {2, 3, 4, 5}, {2, 3, 4, 5}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.equation);
    TestModel model = EinsumModel(c.equation, c.a, c.b);
    EXPECT_EQ(After(model, EinsumProduct()), "Einsum");
  }
}

TEST(MatMulScale, ScalesTheWeightsAndTheBias) {
  for (const bool biased : {false, true}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 3, 4}).Constant("w", Ramp(Shape{4, 5}, 0.2f));
    model.Constant("b", Ramp(Shape{5}, 0.1f)).Constant("s", Floats(Shape{5}, {1, 2, 3, 4, 5}));
    model.Node("MatMul", {"x", "w"}, {"p"});
    if (biased) model.Node("Add", {"b", "p"}, {"q"});
    model.Node("Mul", {biased ? "q" : "p", "s"}, {"y"}).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, MatMulScaleFusion()),
              biased ? "MatMul Add Identity" : "MatMul Identity");
    ExpectSameResults(copy, {Ramp(Shape{2, 3, 4}, 0.5f)});
  }
}

TEST(MatMulScale, DividesByANumber) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3, 4}).Constant("w", Ramp(Shape{4, 5}, 0.2f));
  model.Constant("s", Floats(Shape{}, {8})).Node("MatMul", {"x", "w"}, {"p"});
  model.Node("Div", {"p", "s"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, MatMulScaleFusion()), "MatMul Identity");
  ExpectSameResults(copy, {Ramp(Shape{3, 4}, 0.5f)});
}

TEST(MatMulScale, LeavesADivisionByZero) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3, 4}).Constant("w", Ramp(Shape{4, 2}, 0.2f));
  model.Constant("s", Floats(Shape{2}, {8, 0})).Node("MatMul", {"x", "w"}, {"p"});
  model.Node("Div", {"p", "s"}, {"y"}).Output("y");
  EXPECT_EQ(After(model, MatMulScaleFusion()), "MatMul Div");
}

TEST(MatMulScale, LeavesWeightsThatAnotherProductReads) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3, 4}).Constant("w", Ramp(Shape{4, 4}, 0.2f));
  model.Constant("s", Floats(Shape{}, {8})).Node("MatMul", {"x", "w"}, {"p"});
  model.Node("Mul", {"p", "s"}, {"q"}).Node("MatMul", {"q", "w"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, MatMulScaleFusion()), "MatMul Identity MatMul");
  EXPECT_TRUE(model.graph().IsInitializer(model.graph().nodes[2].inputs[1]));
  ExpectSameResults(copy, {Ramp(Shape{3, 4}, 0.5f)});
}

TEST(MatMulScale, LeavesAProductThatOthersRead) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3, 4}).Constant("w", Ramp(Shape{4, 5}, 0.2f));
  model.Constant("s", Floats(Shape{}, {8})).Node("MatMul", {"x", "w"}, {"p"});
  model.Node("Mul", {"p", "s"}, {"y"}).Output("y").Output("p");
  EXPECT_EQ(After(model, MatMulScaleFusion()), "MatMul Mul");
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
  EXPECT_EQ(After(model, ConvAffineFusion()), "Conv");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 6}, 0.5f)});
}

TEST(ConvBatchNormalization, LeavesAConvolutionThatOthersRead) {
  TestModel model = ConvModel();
  for (const char* name : {"gamma", "beta", "mean", "var"}) {
    model.Constant(name, Floats(Shape{4}, {1, 2, 3, 4}));
  }
  model.Node("BatchNormalization", {"c", "gamma", "beta", "mean", "var"}, {"y"}).Output("y");
  model.Output("c");
  EXPECT_EQ(After(model, ConvAffineFusion()), "Conv BatchNormalization");
}

// x[n, 5, 3] by w, what `between` makes of it, and its four columns normalized.
TestModel NormalizedProduct(const std::string& product, const std::string& between) {
  TestModel model;
  Attributes transposed;
  model.Constant("w", Ramp(Shape{3, 4}, 0.25f)).Constant("wt", Ramp(Shape{4, 3}, 0.25f));
  model.Constant("bias", Floats(Shape{4}, {1, -2, 3, 0}));
  model.Constant("rows", Ints(Shape{2}, {-1, 4})).Constant("flat", Ints(Shape{2}, {-1, 2}));
  model.Constant("var", Floats(Shape{4}, {1, 2, 0.5f, 4}));
  for (const char* name : {"gamma", "beta", "mean"}) {
    model.Constant(name, Floats(Shape{4}, {2, 0.5f, -1, 3}));
  }
  if (product == "Gemm") {
    transposed.Set("transB", int64_t{1});
    model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), 3});
    model.Node("Gemm", {"x", "wt", "bias"}, {"p"}, transposed);
  } else {
    model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), 5, 3});
    model.Node("MatMul", {"x", "w"}, {"p"});
  }
  if (!between.empty()) model.Node("Reshape", {"p", between}, {"r"});
  model.Node("BatchNormalization", {between.empty() ? "p" : "r", "gamma", "beta", "mean", "var"},
             {"y"});
  return std::move(model.Output("y"));
}

TEST(ProductBatchNormalization, ScalesColumnsAndAddsABias) {
  for (const bool gemm : {true, false}) {
    TestModel model = NormalizedProduct(gemm ? "Gemm" : "MatMul", gemm ? "" : "rows");
    TestModel copy = model;
    EXPECT_EQ(After(model, {ProductBatchNormalizationFusion(), DeadCodeElimination()}),
              gemm ? "Gemm Identity" : "MatMul Add Reshape Identity");
    ExpectSameResults(copy, {Ramp(gemm ? Shape{5, 3} : Shape{2, 5, 3}, 0.5f)});
  }
}

TEST(ProductBatchNormalization, LeavesChannelsThatAreNoColumns) {
  // [n, 5, 4]: its channels are the axis of 5.
  TestModel middle = NormalizedProduct("MatMul", "");
  for (const char* name : {"gamma", "beta", "mean", "var"}) {
    middle.graph().initializers.erase(middle.graph().FindValue(name));
    middle.Constant(StrCat(name, "5"), Floats(Shape{5}, {1, 2, 3, 4, 5}));
  }
  Node& node = middle.graph().nodes.back();
  const char* names[] = {"gamma5", "beta5", "mean5", "var5"};
  for (size_t i = 0; i < 4; ++i) node.inputs[i + 1] = middle.graph().FindValue(names[i]);
  EXPECT_EQ(After(middle, {ProductBatchNormalizationFusion()}), "MatMul BatchNormalization");
  TestModel read = NormalizedProduct("Gemm", "");
  read.Output("p");
  EXPECT_EQ(After(read, {ProductBatchNormalizationFusion()}), "Gemm BatchNormalization");
}

TEST(ProductBatchNormalization, LeavesABiasThatIsANumber) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), 3});
  model.Constant("w", Ramp(Shape{3, 1}, 0.25f)).Constant("bias", Floats(Shape{}, {2}));
  model.Constant("one", Floats(Shape{1}, {1}));
  model.Node("Gemm", {"x", "w", "bias"}, {"p"});
  model.Node("BatchNormalization", {"p", "one", "one", "one", "one"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ProductBatchNormalizationFusion()), "Gemm BatchNormalization");
  ExpectSameResults(copy, {Ramp(Shape{5, 3}, 0.5f)});
}

TEST(ConvActivation, TakesTheActivation) {
  TestModel model = ConvModel();
  model.Node("Relu", {"c"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConvActivationFusion()), "FusedConv");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 6}, 0.5f)});
}

TEST(ConvActivation, TakesAResidualSumAndItsActivation) {
  TestModel model = ConvModel();
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  model.Constant("w2", Ramp(Shape{4, 4, 3, 3}, 0.05f)).Node("Conv", {"c", "w2"}, {"d"}, pads);
  model.Node("Add", {"d", "c"}, {"s"}).Node("Relu", {"s"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConvActivationFusion()), "Conv FusedConv");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 6}, 0.5f)});
}

// Clip-13: all elements are the upper bound then.
TEST(ConvActivation, LeavesAClipWhoseBoundsCross) {
  TestModel model = ConvModel();
  model.Constant("low", Floats(Shape{}, {6})).Constant("high", Floats(Shape{}, {-1}));
  model.Node("Clip", {"c", "low", "high"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConvActivationFusion()), "Conv Clip");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 6}, 0.5f)});
}

TEST(ConvActivation, LeavesAnIntermediateThatIsAnOutput) {
  TestModel model = ConvModel();
  model.Node("Relu", {"c"}, {"y"}).Output("y").Output("c");
  EXPECT_EQ(After(model, ConvActivationFusion()), "Conv Relu");
}

TEST(ConvTransposeAsConv, TurnsWeightsAroundForStepsOfOne) {
  for (const int64_t group : {1, 2}) {
    TestModel model;
    Attributes attributes;
    attributes.Set("group", group);
    attributes.Set("pads", std::vector<int64_t>{0, 1, 2, 1});
    attributes.Set("dilations", std::vector<int64_t>{2, 1});
    model.Input("x", DataType::kFloat, {2, 4, 5, 6});
    model.Constant("w", Ramp(Shape{4, 3, 3, 2}, 0.1f)).Constant("b", Ramp(Shape{3 * group}, 0.3f));
    model.Node("ConvTranspose", {"x", "w", "b"}, {"y"}, attributes).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, ConvTransposeAsConv()), "Conv");
    ExpectSameResults(copy, {Ramp(Shape{2, 4, 5, 6}, 0.5f)});
  }
}

TEST(ConvTransposeAsConv, LeavesSteps) {
  TestModel model;
  Attributes attributes;
  attributes.Set("strides", std::vector<int64_t>{2, 1});
  model.Input("x", DataType::kFloat, {1, 4, 5, 6}).Constant("w", Ramp(Shape{4, 3, 3, 2}, 0.1f));
  model.Node("ConvTranspose", {"x", "w"}, {"y"}, attributes).Output("y");
  EXPECT_EQ(After(model, ConvTransposeAsConv()), "ConvTranspose");
}

// How many of the weights that the first node reads are denormal.
int64_t DenormalsOf(const Graph& graph) {
  const auto weights = graph.initializers.at(graph.nodes[0].inputs[1]).Materialize();
  const auto elements = weights->elements<float>();
  return std::count_if(elements.begin(), elements.end(),
                       [](float x) { return x != 0.0f && std::abs(x) < 1e-38f; });
}

TEST(DenormalWeights, AreZeroBesideOthers) {
  for (const char* op : {"MatMul", "Gemm"}) {
    Tensor weights = Ramp(Shape{3, 4}, 0.1f);
    weights.mutable_data<float>()[5] = 1e-40f;
    weights.mutable_data<float>()[7] = -1e-45f;
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 3}).Constant("w", weights);
    model.Node(op, {"x", "w"}, {"y"}).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, {DenormalWeights(), DeadCodeElimination()}), op);
    EXPECT_EQ(DenormalsOf(model.model().graph), 0);
    ExpectSameResults(copy, {Ramp(Shape{2, 3}, 0.5f)});
  }
}

TEST(DenormalWeights, StayWhereAllAreSmallOrAreNoWeights) {
  for (const bool is_product : {true, false}) {
    Tensor weights = *Tensor::Create(DataType::kFloat, Shape{3, 3});
    std::fill_n(weights.mutable_data<float>(), 9, is_product ? 1e-30f : 1.0f);
    weights.mutable_data<float>()[5] = 1e-40f;
    TestModel model;
    model.Input("x", DataType::kFloat, {3, 3}).Constant("w", weights);
    model.Node(is_product ? "MatMul" : "Mul", {"x", "w"}, {"y"}).Output("y");
    After(model, DenormalWeights());
    EXPECT_EQ(DenormalsOf(model.model().graph), 1);
  }
}

}  // namespace
}  // namespace onnxd
