// Quantized models: the operators that QDQ graphs become, and fast kernels against plain ones.
#include <gtest/gtest.h>

#include "runtime/optimizer/passes/passes.h"
#include "tests/support/every_simd.h"
#include "tests/support/quantized_testing.h"

namespace onnxd {
namespace {

class QuantizedOperators : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"quantized_operators", "dynamic_quantized_products", "dequantize_folding"}) {
      passes_.push_back(ProviderPass(name));
    }
    const auto standard = StandardPasses();
    passes_.insert(passes_.end(), standard.begin(), standard.end());
  }

  // Dequantizes bytes of the given format into `name`.
  void Dequantized(const std::string& name, const Shape& shape, float scale = 0.05f,
                   int zero = 128) {
    model_.Input(name + "_q", DataType::kUint8, ToSymbolic(shape));
    model_.Constant(name + "_s", Scales(0, scale)).Constant(name + "_z", Byte(false, zero));
    model_.Node("DequantizeLinear", {name + "_q", name + "_s", name + "_z"}, {name});
    inputs_.push_back(Bytes(shape, false, static_cast<unsigned>(inputs_.size()) + 1));
  }

  // Weights with a scale per slice of `axis`; a negative one: one scale for all.
  void Weights(const std::string& name, const Shape& shape, int64_t axis) {
    const int64_t scales = axis < 0 ? 0 : shape[static_cast<int>(axis)];
    model_.Constant(name + "_q", Bytes(shape, true, 77));
    model_.Constant(name + "_s", Scales(scales, 0.01f));
    model_.Node("DequantizeLinear", {name + "_q", name + "_s"}, {name},
                One("axis", std::max<int64_t>(axis, 0)));
  }

  void Quantize(const std::string& from, float scale = 0.5f, int zero = 100) {
    model_.Constant("y_s", Scales(0, scale)).Constant("y_z", Byte(false, zero));
    model_.Node("QuantizeLinear", {from, "y_s", "y_z"}, {"y"}).Output("y");
  }

  void Expect(const std::string& operators) {
    TestModel copy = model_;
    EXPECT_EQ(After(copy, passes_), operators);
    ExpectClose(model_, inputs_, 1);
  }

  std::vector<const GraphPass*> passes_;
  TestModel model_{13};
  std::vector<Value> inputs_;
};

// By oneDNN where the processor multiplies bytes, by our own products with AVX2.
class QuantizedConv : public QuantizedOperators, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (ProviderPass("channels_last") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
    if (!simd_.is_there()) GTEST_SKIP() << "this processor has no " << GetParam();
    QuantizedOperators::SetUp();
  }

 private:
  const math::ScopedSimd simd_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Sets, QuantizedConv,
                         testing::Values("avx2", "avx512vnni", "amx", math::kEmulatedTiles));

Attributes Pads(std::vector<int64_t> pads) {
  Attributes attributes;
  attributes.Set("pads", std::move(pads));
  return attributes;
}

TEST_P(QuantizedConv, WithABias) {
  Dequantized("x", Shape{2, 3, 7, 6});
  Weights("w", Shape{5, 3, 3, 3}, 0);
  model_.Constant("b", Ramp(Shape{5}, 0.7f));
  model_.Node("Conv", {"x", "w", "b"}, {"c"}, Pads({1, 1, 1, 1}));
  Quantize("c");
  Expect("QLinearConv");
}

TEST_P(QuantizedConv, WithABiasInIntegers) {
  Dequantized("x", Shape{1, 3, 7, 6});
  Weights("w", Shape{5, 3, 1, 1}, -1);
  Tensor bias = *Tensor::Create(DataType::kInt32, Shape{5});
  for (int32_t i = 0; i < 5; ++i) bias.mutable_data<int32_t>()[i] = 1000 * i - 2000;
  model_.Constant("b_q", bias).Constant("b_s", Scales(0, 0.0005f));
  model_.Node("DequantizeLinear", {"b_q", "b_s"}, {"b"});
  model_.Node("Conv", {"x", "w", "b"}, {"c"});
  Quantize("c");
  Expect("QLinearConv");
}

// Signals are images of one row, handed from one convolution to the next.
TEST_P(QuantizedConv, OfSignals) {
  passes_.push_back(ProviderPass("quantized_signals"));
  passes_.push_back(DeadCodeElimination());
  Dequantized("x", Shape{2, 3, 40});
  Weights("w", Shape{8, 3, 5}, 0);
  Weights("v", Shape{4, 8, 3}, -1);
  Attributes window = Pads({2, 1});
  window.Set("strides", std::vector<int64_t>{2});
  model_.Constant("b", Ramp(Shape{8}, 0.7f)).Node("Conv", {"x", "w", "b"}, {"c"}, window);
  model_.Constant("c_s", Scales(0, 0.5f)).Constant("c_z", Byte(false, 100));
  model_.Node("QuantizeLinear", {"c", "c_s", "c_z"}, {"c_q"});
  model_.Node("DequantizeLinear", {"c_q", "c_s", "c_z"}, {"d"});
  model_.Node("Conv", {"d", "v"}, {"e"}, Pads({1, 1}));
  Quantize("e");
  Expect("Unsqueeze QLinearConv QLinearConv Squeeze");
}

TEST_P(QuantizedConv, ReluThatSaturationDoesAnyway) {
  Dequantized("x", Shape{1, 3, 7, 6});
  Weights("w", Shape{5, 3, 3, 3}, 0);
  model_.Node("Conv", {"x", "w"}, {"c"}).Node("Relu", {"c"}, {"r"});
  Quantize("r", 0.5f, 0);
  Expect("QLinearConv");
}

TEST_P(QuantizedConv, ReluThatCutsMoreThanSaturation) {
  Dequantized("x", Shape{1, 3, 7, 6});
  Weights("w", Shape{5, 3, 3, 3}, 0);
  model_.Node("Conv", {"x", "w"}, {"c"}).Node("Relu", {"c"}, {"r"});
  Quantize("r", 0.5f, 100);
  Expect("QLinearConv Clip");
}

// Zero points of x that padding must have, signed bytes, windows of every kind, several threads.
TEST_P(QuantizedConv, OfEveryWindow) {
  struct Case {
    const char* what;
    int64_t batch, in, out, height, width;
    std::vector<int64_t> kernel, strides, dilations, pads;
    bool is_signed;
    int x_zero, y_zero;
  };
  const std::vector<Case> cases = {
      {"pixels", 2, 6, 20, 9, 11, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, false, 100, 50},
      {"pixels of odd channels",
       1,
       7,
       16,
       12,
       13,
       {1, 1},
       {1, 1},
       {1, 1},
       {0, 0, 0, 0},
       true,
       -3,
       4},
      {"pixels two apart", 3, 5, 9, 9, 8, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}, false, 3, 128},
      {"windows", 1, 16, 40, 14, 13, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, false, 77, 9},
      {"windows of signed bytes",
       2,
       16,
       33,
       7,
       7,
       {3, 3},
       {1, 1},
       {1, 1},
       {1, 1, 1, 1},
       true,
       5,
       -9},
      {"steps", 1, 3, 17, 15, 16, {7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}, false, 11, 128},
      {"holes", 1, 5, 8, 12, 10, {3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}, false, 200, 128},
      {"large images", 2, 32, 48, 13, 12, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, false, 200, 128},
      {"large images of signed bytes",
       1,
       50,
       32,
       17,
       15,
       {3, 3},
       {1, 1},
       {1, 1},
       {0, 2, 1, 0},
       true,
       -77,
       3},
      {"uneven padding", 2, 9, 8, 5, 4, {2, 3}, {1, 2}, {1, 1}, {0, 2, 1, 0}, true, -100, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    TestModel model{13};
    model.Input("x_q", c.is_signed ? DataType::kInt8 : DataType::kUint8,
                {c.batch, c.in, c.height, c.width});
    model.Constant("x_s", Scales(0, 0.05f)).Constant("x_z", Byte(c.is_signed, c.x_zero));
    model.Node("DequantizeLinear", {"x_q", "x_s", "x_z"}, {"x"});
    model.Constant("w_q", Bytes(Shape{c.out, c.in, c.kernel[0], c.kernel[1]}, true, 77));
    model.Constant("w_s", Scales(c.out, 0.002f));
    model.Node("DequantizeLinear", {"w_q", "w_s"}, {"w"}, One("axis", 0));
    model.Constant("b", Ramp(Shape{c.out}, 0.7f));
    Attributes window;
    window.Set("strides", c.strides);
    window.Set("dilations", c.dilations);
    window.Set("pads", c.pads);
    model.Node("Conv", {"x", "w", "b"}, {"c"}, window);
    model.Constant("y_s", Scales(0, 0.5f)).Constant("y_z", Byte(c.is_signed, c.y_zero));
    model.Node("QuantizeLinear", {"c", "y_s", "y_z"}, {"y"}).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(copy, passes_), "QLinearConv");
    const Value x = Bytes(Shape{c.batch, c.in, c.height, c.width}, c.is_signed, 5);
    for (const int threads : {1, 2, 3}) ExpectClose(model, {x}, 1, threads);
  }
}

TEST_F(QuantizedOperators, MatMulBeforeBytesAndBeforeFloats) {
  Dequantized("x", Shape{2, 4, 40});
  Weights("w", Shape{40, 33}, 1);
  model_.Node("MatMul", {"x", "w"}, {"p"});
  Quantize("p");
  Weights("v", Shape{40, 9}, -1);
  model_.Constant("row", Ramp(Shape{9}, 0.5f));
  model_.Node("MatMul", {"x", "v"}, {"f"}).Node("Add", {"row", "f"}, {"z"}).Output("z");
  Expect("QLinearMatMul MatMulIntegerToFloat");
}

TEST_F(QuantizedOperators, GemmWithATransposedMatrix) {
  Dequantized("x", Shape{4, 40});
  Weights("w", Shape{33, 40}, 0);
  model_.Constant("b", Ramp(Shape{33}, 0.5f));
  model_.Node("Gemm", {"x", "w", "b"}, {"p"}, One("transB", 1));
  Quantize("p");
  Expect("QGemm");
}

TEST_F(QuantizedOperators, SumsProductsAndMeans) {
  Dequantized("a", Shape{2, 3, 4, 5}, 0.05f, 128);
  Dequantized("b", Shape{3, 1, 5}, 0.02f, 7);
  model_.Node("Add", {"a", "b"}, {"s"}).Constant("s_s", Scales(0, 0.1f));
  model_.Constant("s_z", Byte(false, 90));
  model_.Node("QuantizeLinear", {"s", "s_s", "s_z"}, {"s_q"});
  model_.Node("DequantizeLinear", {"s_q", "s_s", "s_z"}, {"s_f"});
  model_.Node("Mul", {"s_f", "a"}, {"p"}).Constant("p_s", Scales(0, 0.4f));
  model_.Node("QuantizeLinear", {"p", "p_s", "s_z"}, {"p_q"});
  model_.Node("DequantizeLinear", {"p_q", "p_s", "s_z"}, {"p_f"});
  model_.Node("GlobalAveragePool", {"p_f"}, {"m"});
  Quantize("m", 0.2f);
  Expect("QLinearAdd QLinearMul QLinearGlobalAveragePool");
}

TEST_F(QuantizedOperators, WhatOnlyMovesBytes) {
  Dequantized("x", Shape{2, 6, 4}, 0.05f, 128);
  model_.Constant("shape", Ints(Shape{3}, {4, 3, 4})).Node("Reshape", {"x", "shape"}, {"r"});
  model_.Node("QuantizeLinear", {"r", "x_s", "x_z"}, {"r_q"});
  model_.Node("DequantizeLinear", {"r_q", "x_s", "x_z"}, {"r_f"});
  model_.Node("Transpose", {"r_f"}, {"t"});
  Quantize("t", 0.05f, 128);
  Expect("Reshape Transpose");
}

TEST_F(QuantizedOperators, QuantizingAgainIsDropped) {
  Dequantized("x", Shape{2, 6});
  model_.Node("QuantizeLinear", {"x", "x_s", "x_z"}, {"q"});
  model_.Node("DequantizeLinear", {"q", "x_s", "x_z"}, {"f"}).Node("Exp", {"f"}, {"y"}).Output("y");
  Expect("DequantizeLinear Exp");
}

// What torch exports around softmax: bytes are never NaN.
TEST_F(QuantizedOperators, GuardsAgainstNaNAreDroppedBehindBytes) {
  Dequantized("x", Shape{2, 6});
  model_.Constant("number", Floats(Shape{}, {0})).Node("IsNaN", {"x"}, {"n"});
  model_.Node("Where", {"n", "number", "x"}, {"w"});
  model_.Node("QuantizeLinear", {"w", "x_s", "x_z"}, {"q"});
  model_.Node("DequantizeLinear", {"q", "x_s", "x_z"}, {"f"}).Node("Exp", {"f"}, {"y"}).Output("y");
  Expect("DequantizeLinear Exp");
}

TEST_F(QuantizedOperators, GuardsThatStretchOrReadAnotherValueStay) {
  Dequantized("x", Shape{2, 6});
  Dequantized("z", Shape{2, 6});
  model_.Constant("cube", Floats(Shape{1, 1, 1}, {0})).Constant("number", Floats(Shape{}, {0}));
  model_.Node("IsNaN", {"x"}, {"n"});
  model_.Node("Where", {"n", "cube", "x"}, {"stretched"}).Output("stretched");
  model_.Node("Where", {"n", "number", "z"}, {"other"}).Output("other");
  TestModel copy = model_;
  EXPECT_EQ(After(copy, passes_), "DequantizeLinear DequantizeLinear IsNaN Where Where");
}

TEST_F(QuantizedOperators, ConcatOfOneFormatAndOfSeveral) {
  Dequantized("a", Shape{2, 3}, 0.05f, 128);
  Dequantized("b", Shape{2, 4}, 0.05f, 128);
  Dequantized("c", Shape{2, 2}, 0.03f, 5);
  model_.Node("Concat", {"a", "b"}, {"ab"}, One("axis", 1));
  model_.Node("QuantizeLinear", {"ab", "a_s", "a_z"}, {"ab_q"});
  model_.Node("DequantizeLinear", {"ab_q", "a_s", "a_z"}, {"ab_f"});
  model_.Node("Concat", {"ab_f", "c"}, {"abc"}, One("axis", 1));
  Quantize("abc", 0.1f);
  Expect("Concat QLinearConcat");
}

TEST_F(QuantizedOperators, LeaveWhatOthersReadInFloats) {
  Dequantized("x", Shape{1, 3, 7, 6});
  Weights("w", Shape{5, 3, 3, 3}, 0);
  model_.Node("Conv", {"x", "w"}, {"c"});
  Quantize("c");
  model_.Output("c");
  TestModel copy = model_;
  EXPECT_EQ(After(copy, passes_), "DequantizeLinear Conv QuantizeLinear");
}

TEST_F(QuantizedOperators, LeaveScalesThatAreComputed) {
  model_.Input("s", DataType::kFloat, {}).Input("q", DataType::kUint8, {2, 40});
  model_.Node("DequantizeLinear", {"q", "s"}, {"x"});
  Weights("w", Shape{40, 9}, -1);
  model_.Node("MatMul", {"x", "w"}, {"y"}).Output("y");
  EXPECT_EQ(After(model_, passes_), "DequantizeLinear MatMul");
}

TEST_F(QuantizedOperators, DynamicallyQuantizedProductsTakeScaleAndBias) {
  model_.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), 40});
  model_.Node("DynamicQuantizeLinear", {"x"}, {"x_q", "x_s", "x_z"});
  model_.Constant("w", Bytes(Shape{40, 33}, true, 5)).Constant("w_s", Scales(33, 0.01f));
  model_.Constant("w_z", Zeros(DataType::kInt8, 33)).Constant("row", Ramp(Shape{33}, 0.5f));
  model_.Node("MatMulInteger", {"x_q", "w", "x_z", "w_z"}, {"p"});
  model_.Node("Cast", {"p"}, {"f"}, One("to", static_cast<int64_t>(DataType::kFloat)));
  model_.Node("Mul", {"x_s", "w_s"}, {"s"}).Node("Mul", {"f", "s"}, {"g"});
  model_.Node("Add", {"g", "row"}, {"y"}).Output("y");
  inputs_ = {Ramp(Shape{5, 40}, 0.3f)};
  TestModel copy = model_;
  EXPECT_EQ(After(copy, passes_), "DynamicQuantizeLinear MatMulIntegerToFloat");
  ExpectClose(model_, inputs_, 1e-3);
}

// As onnxruntime's dynamic quantization writes them; the sums are the same but for rounding.
TEST(DynamicQuantizedConvs, ComputeInFloats) {
  for (const bool scaled : {true, false}) {
    for (const int64_t zeros : {int64_t{0}, int64_t{4}}) {
      TestModel model(13);
      model.Input("x", DataType::kFloat, {2, 3, 9, 8});
      model.Node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"});
      model.Constant("w", Bytes(Shape{4, 3, 3, 3}, true, 5));
      Tensor wz = *Tensor::Create(DataType::kInt8, zeros == 0 ? Shape{} : Shape{zeros});
      for (int64_t i = 0; i < wz.ElementCount(); ++i) {
        wz.mutable_data<int8_t>()[i] = static_cast<int8_t>(3 * i - 4);
      }
      model.Constant("wz", wz).Constant("ws", Scales(0, 0.02f));
      model.Node("ConvInteger", {"q", "w", "z", "wz"}, {"i"}, Pads({1, 0, 1, 2}));
      model.Node("Cast", {"i"}, {"f"}, One("to", static_cast<int64_t>(DataType::kFloat)));
      model.Node("Mul", {"s", "ws"}, {"scale"}).Node("Mul", {"f", scaled ? "scale" : "s"}, {"y"});
      model.Output("y");
      TestModel copy = model;
      EXPECT_EQ(After(copy, {ProviderPass("dynamic_quantized_convs"), DeadCodeElimination()}),
                scaled ? "DynamicQuantizeLinear DequantizeLinear Conv"
                       : "DynamicQuantizeLinear DequantizeLinear Conv Mul");
      ExpectSameResults(model, {Ramp(Shape{2, 3, 9, 8}, 0.3f)}, 2, 1e-4f);
    }
  }
}

// As its older versions did, with the bias in integers; on either side, or read as integers as
// well.
TEST(DynamicQuantizedConvs, TakeABiasOfIntegersAlong) {
  for (const int variant : {0, 1, 2}) {
    TestModel model(13);
    model.Input("q", DataType::kUint8, {2, 3, 9, 8}).Constant("z", Tensor::Scalar<uint8_t>(100));
    model.Constant("w", Bytes(Shape{4, 3, 3, 3}, true, 5));
    model.Constant("b",
                   Tensor::Of<int32_t>(Shape{1, 4, 1, 1}, std::vector<int32_t>{7, -900, 0, 5}));
    model.Node("ConvInteger", {"q", "w", "z"}, {"i"});
    const bool first = variant == 1;
    model.Node("Add", {first ? "b" : "i", first ? "i" : "b"}, {"s"});
    model.Node("Cast", {"s"}, {"y"}, One("to", static_cast<int64_t>(DataType::kFloat)));
    model.Output("y");
    if (variant == 2) model.Output("s");
    TestModel copy = model;
    EXPECT_EQ(After(copy, {ProviderPass("dynamic_quantized_convs"), DeadCodeElimination()}),
              variant == 2 ? "ConvInteger Add Cast" : "DequantizeLinear Conv Cast Add");
    if (variant != 2) ExpectSameResults(model, {Bytes(Shape{2, 3, 9, 8}, false, 7)}, 1, 1e-6f);
  }
}

TEST(DynamicQuantizedConvs, LeaveSumsThatAreReadAsIntegers) {
  TestModel model(13);
  model.Input("q", DataType::kUint8, {1, 3, 9, 8}).Constant("w", Bytes(Shape{4, 3, 3, 3}, true, 5));
  model.Node("ConvInteger", {"q", "w"}, {"y"}).Output("y");
  EXPECT_EQ(After(model, ProviderPass("dynamic_quantized_convs")), "ConvInteger");
}

TEST(DequantizeFolding, MakesFloatsOfConstants) {
  TestModel model(13);
  model.Constant("w_q", Bytes(Shape{3, 4}, true, 3)).Constant("w_s", Scales(4, 0.1f));
  model.Input("x", DataType::kFloat, {2, 3});
  model.Node("DequantizeLinear", {"w_q", "w_s"}, {"w"}, One("axis", 1));
  model.Node("MatMul", {"x", "w"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ProviderPass("dequantize_folding"), IdentityElimination()}), "MatMul");
  ExpectSameResults(copy, {Ramp(Shape{2, 3}, 0.5f)});
}

TEST(DequantizeFolding, LeavesTablesInBytes) {
  TestModel model(13);
  model.Constant("w_q", Bytes(Shape{30, 4}, true, 3)).Constant("w_s", Scales(0, 0.1f));
  model.Input("i", DataType::kInt64, {3}).Node("DequantizeLinear", {"w_q", "w_s"}, {"w"});
  model.Node("Gather", {"w", "i"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ProviderPass("dequantize_folding"), DeadCodeElimination()}),
            "Gather DequantizeLinear");
  ExpectSameResults(copy, {Ints(Shape{3}, {29, 0, 7})});
}

struct ConvCase {
  int64_t batch, in, out, kernel, group, stride, dilation;
  std::vector<int64_t> pads;
  bool signed_x, signed_y, signed_w;
  int x_zero, y_zero;
};

class QuantizedConvolution : public testing::TestWithParam<ConvCase> {};

TEST_P(QuantizedConvolution, AgreesWithThePlainKernel) {
  const ConvCase& c = GetParam();
  TestModel model(13);
  model.Input("x", c.signed_x ? DataType::kInt8 : DataType::kUint8, {c.batch, c.in, 13, 11});
  model.Constant("w", Bytes(Shape{c.out, c.in / c.group, c.kernel, c.kernel}, c.signed_w, 9));
  model.Constant("xs", Scales(0, 0.02f)).Constant("xz", Byte(c.signed_x, c.x_zero));
  model.Constant("ws", Scales(c.out, 0.003f))
      .Constant("wz", Byte(c.signed_w, c.signed_w ? 0 : 128));
  model.Constant("ys", Scales(0, 0.05f)).Constant("yz", Byte(c.signed_y, c.y_zero));
  Tensor bias = *Tensor::Create(DataType::kInt32, Shape{c.out});
  for (int32_t i = 0; i < c.out; ++i) bias.mutable_data<int32_t>()[i] = i * 100 - 700;
  model.Constant("b", bias);
  Attributes attributes = Pads(c.pads);
  attributes.Set("group", c.group);
  attributes.Set("strides", std::vector<int64_t>{c.stride, c.stride});
  attributes.Set("dilations", std::vector<int64_t>{c.dilation, c.dilation});
  model.Node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"}, {"y"}, attributes);
  model.Output("y");
  for (const int threads : {1, 3}) {
    ExpectClose(model, {Bytes(Shape{c.batch, c.in, 13, 11}, c.signed_x, 4)}, 1, threads);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, QuantizedConvolution,
    testing::Values(ConvCase{1, 16, 24, 3, 1, 1, 1, {1, 1, 1, 1}, false, false, true, 0, 0},
                    ConvCase{2, 16, 24, 3, 1, 1, 1, {1, 1, 1, 1}, false, false, true, 117, 3},
                    ConvCase{1, 16, 24, 3, 1, 2, 1, {0, 1, 2, 0}, true, true, true, -7, 11},
                    ConvCase{3, 12, 12, 3, 12, 1, 1, {1, 1, 1, 1}, false, false, true, 90, 100},
                    ConvCase{1, 12, 12, 3, 12, 2, 1, {1, 1, 1, 1}, true, true, true, 5, -100},
                    ConvCase{1, 16, 8, 1, 1, 1, 1, {0, 0, 0, 0}, true, false, true, -128, 0},
                    ConvCase{1, 16, 8, 1, 2, 1, 1, {0, 0, 0, 0}, false, true, true, 3, 9},
                    ConvCase{1, 8, 8, 3, 1, 1, 3, {3, 3, 3, 3}, false, false, false, 128, 128},
                    ConvCase{1, 3, 5, 5, 1, 2, 1, {2, 2, 2, 2}, true, true, true, 0, 0}));

TEST(QuantizedConvInFloats, TakesWeightsWithZeroPointsOfTheirOwn) {
  TestModel model(13);
  model.Input("x", DataType::kUint8, {2, 3, 9, 8})
      .Constant("w", Bytes(Shape{6, 3, 3, 3}, false, 9));
  model.Constant("xs", Scales(0, 0.02f)).Constant("xz", Byte(false, 120));
  model.Constant("ws", Scales(6, 0.003f)).Constant("wz", Bytes(Shape{6}, false, 10));
  model.Constant("ys", Scales(0, 0.2f)).Constant("yz", Byte(false, 100));
  Tensor bias = *Tensor::Create(DataType::kInt32, Shape{6});
  for (int32_t i = 0; i < 6; ++i) bias.mutable_data<int32_t>()[i] = i * 1000 - 2000;
  model.Constant("b", bias);
  model.Node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"}, {"y"},
             Pads({1, 1, 1, 1}));
  model.Output("y");
  TestModel copy = model;
  auto passes = StandardPasses();
  passes.insert(passes.begin(),
                {ProviderPass("quantized_conv_in_floats"), ProviderPass("dequantize_folding")});
  EXPECT_EQ(After(copy, passes), "DequantizeLinear Conv QuantizeLinear");
  ExpectClose(model, {Bytes(Shape{2, 3, 9, 8}, false, 4)}, 1);
}

// A product with all that the operator can have.
class ByteProducts : public testing::TestWithParam<std::tuple<bool, int64_t, int64_t, int64_t>> {
 protected:
  ByteProducts() {
    std::tie(is_signed_, m_, k_, n_) = GetParam();
    zero_ = is_signed_ ? -9 : 131;
    model_.Constant("b", Bytes(Shape{k_, n_}, true, 6)).Constant("b_s", Scales(n_, 0.01f));
    Tensor zeros = Zeros(DataType::kInt8, n_);
    for (int64_t j = 0; j < n_ && k_ == 70; ++j) {  // asymmetric weights
      zeros.mutable_data<int8_t>()[j] = static_cast<int8_t>(j % 50 - 20);
    }
    model_.Constant("b_z", zeros);
    model_.Constant("a_z", Byte(is_signed_, zero_)).Constant("a_s", Scales(0, 0.02f));
    model_.Constant("y_s", Scales(0, 0.04f * std::sqrt(static_cast<float>(k_))));
    model_.Constant("y_z", Byte(is_signed_, is_signed_ ? 3 : 120));
  }
  void Input() { model_.Input("a", is_signed_ ? DataType::kInt8 : DataType::kUint8, {2, m_, k_}); }
  void Expect(double absolute) {
    model_.Output("y");
    for (const int threads : {1, 2}) {
      ExpectClose(model_, {Bytes(Shape{2, m_, k_}, is_signed_, 8)}, absolute, threads);
    }
  }

  bool is_signed_;
  int64_t m_, k_, n_;
  int zero_;
  TestModel model_{17};
};

TEST_P(ByteProducts, MatMulInteger) {
  Input();
  model_.Node("MatMulInteger", {"a", "b", "a_z", "b_z"}, {"y"});
  Expect(0);
}

TEST_P(ByteProducts, QLinearMatMul) {
  Input();
  model_.Node("QLinearMatMul", {"a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"}, {"y"});
  Expect(1);
}

TEST_P(ByteProducts, MatMulIntegerToFloat) {
  Input();
  model_.Constant("row", Ramp(Shape{n_}, 0.5f));
  model_.Node("MatMulIntegerToFloat", {"a", "b", "a_s", "b_s", "a_z", "b_z", "row"}, {"y"}, {},
              kMicrosoft);
  Expect(1e-2);
}

TEST_P(ByteProducts, DynamicQuantizeMatMul) {
  model_.Input("a", DataType::kFloat, {2, m_, k_}).Constant("row", Ramp(Shape{n_}, 0.5f));
  model_.Node("DynamicQuantizeMatMul", {"a", "b", "b_s", "b_z", "row"}, {"y"}, {}, kMicrosoft);
  model_.Output("y");
  ExpectClose(model_, {Ramp(Shape{2, m_, k_}, 0.1f)}, 1e-2);
}

TEST_P(ByteProducts, QGemm) {
  model_.Input("a", is_signed_ ? DataType::kInt8 : DataType::kUint8, {m_, k_});
  Tensor integers = *Tensor::Create(DataType::kInt32, Shape{n_});
  for (int64_t i = 0; i < n_; ++i) {
    integers.mutable_data<int32_t>()[i] = static_cast<int32_t>(i) * 50 - 1000;
  }
  model_.Constant("c", integers);
  model_.Node("QGemm", {"a", "a_s", "a_z", "b", "b_s", "b_z", "c", "y_s", "y_z"}, {"y"}, {},
              kMicrosoft);
  model_.Output("y");
  ExpectClose(model_, {Bytes(Shape{m_, k_}, is_signed_, 8)}, 1);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ByteProducts,
                         testing::Values(std::tuple(false, 1, 70, 33), std::tuple(true, 5, 64, 64),
                                         std::tuple(false, 7, 129, 600),
                                         std::tuple(true, 301, 16, 48)));

}  // namespace
}  // namespace onnxd
