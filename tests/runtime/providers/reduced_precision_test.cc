// Precisions below float32: what the pass makes of a graph, how near the results are, and what a
// machine does that computes them no faster. Loops in floats, and oneDNN's with AVX-512, stand in
// for what a processor lacks, so that the kernels run where no session would choose them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/math/simd.h"
#include "tests/support/every_simd.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// The graph as a provider leaves it at this precision, whether the processor is fast with it or
// not.
Status Prepare(TestModel& model, Precision precision) {
  PassContext context;
  context.precision = precision;
  const auto providers = MakeProviders({});
  context.evaluate = MakeConstantEvaluator(*providers, std::make_shared<ThreadPool>(1));
  ONNXD_RETURN_IF_ERROR(InferGraph(model.graph()));
  std::vector<const GraphPass*> passes = StandardPasses();
  for (const auto& provider : *providers) {
    for (const GraphPass* pass : provider->Passes()) passes.push_back(pass);
  }
  return RunPasses(passes, OptimizationLevel::kAll, model.graph(), context);
}

std::string Operators(TestModel& model) {
  std::string ops;
  for (const Node& node : model.graph().nodes) ops += (ops.empty() ? "" : " ") + node.op_type;
  return ops;
}

Tensor Waves(const Shape& shape, float scale, float phase) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * std::sin(0.37f * static_cast<float>(i) + phase);
  }
  return tensor;
}

TestModel Products() {
  TestModel model;
  model.Input("x", DataType::kFloat, {40, 256})
      .Constant("w", Waves(Shape{256, 384}, 0.06f, 0.1f))
      .Constant("b", Waves(Shape{384}, 0.5f, 0.7f))
      .Constant("v", Waves(Shape{384, 256}, 0.05f, 0.3f))
      .Node("MatMul", {"x", "w"}, {"xw"})
      .Node("Add", {"xw", "b"}, {"h"})
      .Node("Relu", {"h"}, {"r"})
      .Node("MatMul", {"r", "v"}, {"rv"})
      .Node("Add", {"rv", "x"}, {"y"})
      .Output("y");
  return model;
}

TestModel Convolutions() {
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  TestModel model;
  model.Input("x", DataType::kFloat, {1, 16, 12, 12})
      .Constant("w", Waves(Shape{32, 16, 3, 3}, 0.1f, 0.1f))
      .Constant("b", Waves(Shape{32}, 0.5f, 0.7f))
      .Constant("v", Waves(Shape{32, 32, 3, 3}, 0.08f, 0.3f))
      .Node("Conv", {"x", "w", "b"}, {"c"}, pads)
      .Node("Relu", {"c"}, {"r"})
      .Node("Conv", {"r", "v"}, {"d"}, pads)
      .Node("Add", {"d", "r"}, {"s"})
      .Node("Relu", {"s"}, {"y"})
      .Output("y");
  return model;
}

// Of images of 7 x 8 pixels and fewer, whose weights outweigh them.
TestModel SmallImages() {
  const auto window = [](int64_t pad, int64_t stride, int64_t dilation) {
    Attributes attributes;
    attributes.Set("pads", std::vector<int64_t>(4, pad));
    attributes.Set("strides", std::vector<int64_t>(2, stride));
    attributes.Set("dilations", std::vector<int64_t>(2, dilation));
    return attributes;
  };
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 72, 7, 8})
      .Constant("w", Waves(Shape{256, 72, 3, 3}, 0.05f, 0.1f))
      .Constant("b", Waves(Shape{256}, 0.5f, 0.7f))
      .Constant("wide", Waves(Shape{512, 256, 1, 1}, 0.06f, 0.3f))
      .Constant("narrow", Waves(Shape{256, 512, 1, 1}, 0.04f, 0.2f))
      .Constant("v", Waves(Shape{65, 256, 3, 3}, 0.03f, 0.17f))
      .Constant("u", Waves(Shape{512, 256, 1, 1}, 0.05f, 0.23f))
      .Node("Conv", {"x", "w", "b"}, {"c"}, window(1, 1, 1))
      .Node("Relu", {"c"}, {"r"})
      .Node("Conv", {"r", "wide"}, {"d"})
      .Node("Relu", {"d"}, {"e"})
      .Node("Conv", {"e", "narrow"}, {"f"})
      .Node("Add", {"f", "r"}, {"s"})
      .Node("Relu", {"s"}, {"t"})
      .Node("Conv", {"t", "v"}, {"y"}, window(2, 1, 2))
      .Node("Conv", {"t", "u"}, {"z"}, window(0, 2, 1))
      .Output("y")
      .Output("z");
  return model;
}

// What stands behind a product whose result nobody wants in bfloat16: our own gives floats.
std::string LastCast() { return math::CurrentSimd().fast_bfloat16 ? "" : " Cast"; }

struct Nearness {
  double cosine, error;  // the largest difference, of the range of what is expected
};

Nearness Compare(const Tensor& expected, const Tensor& got) {
  double ab = 0, aa = 0, bb = 0, worst = 0, low = 0, high = 0;
  for (int64_t i = 0; i < expected.ElementCount(); ++i) {
    const double a = expected.data<float>()[i], b = got.data<float>()[i];
    ab += a * b, aa += a * a, bb += b * b;
    worst = std::max(worst, std::abs(a - b));
    low = std::min(low, a), high = std::max(high, a);
  }
  return {ab / std::sqrt(aa * bb), worst / (high - low)};
}

class ReducedPrecisionTest : public math::WithSimd {
 protected:
  void SetUp() override {
    math::WithSimd::SetUp();
    if (IsSkipped()) return;
    if (ProviderPass("reduced_precision") == nullptr) GTEST_SKIP() << "built without oneDNN";
    const math::Simd& simd = math::CurrentSimd();
    if (!simd.fast_bfloat16 && simd.name.substr(0, 6) != "avx512") {
      GTEST_SKIP() << "oneDNN has no bfloat16 without AVX-512";
    }
  }

  // Runs `model` as it is, and after the pass on so many threads.
  static Nearness Measure(TestModel (*make)(), Precision precision, const Tensor& x, int threads) {
    TestModel reduced = make();
    const Status prepared = Prepare(reduced, precision);
    EXPECT_TRUE(prepared.ok()) << prepared.ToString();
    SessionOptions options = DefaultSession(OptimizationLevel::kDisable);
    options.pool = std::make_shared<ThreadPool>(threads);
    const auto plain = make().Load(OptimizationLevel::kDisable);
    const auto session =
        InferenceSession::FromModel(std::move(reduced.model()), std::move(options));
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    if (!plain.ok() || !session.ok()) return {};
    const auto a = (*plain)->Run(std::vector<Value>{x}, {});
    const auto b = (*session)->Run(std::vector<Value>{x}, {});
    EXPECT_TRUE(b.ok()) << b.status().ToString();
    if (!a.ok() || !b.ok()) return {};
    Nearness worst = Compare((*a)[0].tensor(), (*b)[0].tensor());
    for (size_t i = 1; i < a->size(); ++i) {
      const Nearness other = Compare((*a)[i].tensor(), (*b)[i].tensor());
      worst = {std::min(worst.cosine, other.cosine), std::max(worst.error, other.error)};
    }
    return worst;
  }
};

TEST_P(ReducedPrecisionTest, NeighboursHandEachOtherBfloat16) {
  TestModel products = Products();
  ASSERT_TRUE(Prepare(products, Precision::kBfloat16).ok());
  EXPECT_EQ(Operators(products), "Cast MatMulBiasActivation MatMulBiasActivation" + LastCast());
  TestModel convolutions = Convolutions();
  ASSERT_TRUE(Prepare(convolutions, Precision::kBfloat16).ok());
  EXPECT_EQ(Operators(convolutions),
            "Transpose Cast ConvChannelsLast ConvChannelsLast Transpose Cast");
}

TEST_P(ReducedPrecisionTest, WhatIsNotAProductStaysFloat) {
  TestModel model;
  model.Input("x", DataType::kFloat, {40, 256})
      .Constant("w", Waves(Shape{256, 256}, 0.06f, 0.1f))
      .Node("Softmax", {"x"}, {"s"})
      .Node("MatMul", {"s", "w"}, {"y"})
      .Node("Softmax", {"y"}, {"z"})
      .Output("z");
  ASSERT_TRUE(Prepare(model, Precision::kBfloat16).ok());
  EXPECT_EQ(Operators(model), "Softmax Cast MatMulBiasActivation" + LastCast() + " Softmax");
  for (const Node& node : model.graph().nodes) {
    if (!node.Is("Softmax")) continue;
    EXPECT_EQ(model.graph().value(node.inputs[0]).type.element, DataType::kFloat);
  }
}

// Queries, keys and values of 4 heads of 64 from x [2, 50, 256], and a mask.
TestModel Attention() {
  const auto order = [](std::vector<int64_t> axes) {
    Attributes attributes;
    attributes.Set("perm", std::move(axes));
    return attributes;
  };
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 50, 256})
      .Constant("heads", Tensor::Of<int64_t>(Shape{4}, {0, 0, 4, 64}))
      .Constant("joined", Tensor::Of<int64_t>(Shape{3}, {0, 0, 256}))
      .Constant("mask", Waves(Shape{50, 50}, 2.0f, 0.2f))
      .Constant("root", Floats(Shape{}, {8}))
      .Constant("o", Waves(Shape{256, 256}, 0.05f, 0.9f));
  for (const std::string name : {"q", "k", "v"}) {
    model.Constant("w" + name, Waves(Shape{256, 256}, 0.06f, static_cast<float>(name[0])))
        .Node("MatMul", {"x", "w" + name}, {name + "0"})
        .Node("Reshape", {name + "0", "heads"}, {name + "1"});
  }
  model.Node("Transpose", {"q1"}, {"q"}, order({0, 2, 1, 3}))
      .Node("Transpose", {"k1"}, {"k"}, order({0, 2, 3, 1}))
      .Node("Transpose", {"v1"}, {"v"}, order({0, 2, 1, 3}))
      .Node("MatMul", {"q", "k"}, {"s"})
      .Node("Div", {"s", "root"}, {"d"})
      .Node("Add", {"d", "mask"}, {"m"})
      .Node("Softmax", {"m"}, {"p"})
      .Node("MatMul", {"p", "v"}, {"a"})
      .Node("Transpose", {"a"}, {"t"}, order({0, 2, 1, 3}))
      .Node("Reshape", {"t", "joined"}, {"r"})
      .Node("MatMul", {"r", "o"}, {"y"})
      .Output("y");
  return model;
}

TEST_P(ReducedPrecisionTest, AttentionAndWhatMovesItsOperandsAreBfloat16WhereThatIsFast) {
  TestModel model = Attention();
  ASSERT_TRUE(Prepare(model, Precision::kBfloat16).ok());
  if (math::CurrentSimd().fast_bfloat16) {
    EXPECT_EQ(Operators(model),
              "Cast MatMulBiasActivation Reshape MatMulBiasActivation Reshape MatMulBiasActivation "
              "Reshape FusedAttention Reshape MatMulBiasActivation");
  }
  for (const int threads : {1, 3}) {
    const Tensor x = Waves(Shape{2, 50, 256}, 1.0f, 0.9f);
    EXPECT_GT(Measure(Attention, Precision::kBfloat16, x, threads).cosine, 0.9999);
  }
}

class Bfloat16Attention : public math::WithSimd {};

// Whole and odd widths, more queries than a block, masks, and a query that no key is left for.
TEST_P(Bfloat16Attention, IsNearFloats) {
  const std::vector<std::array<int64_t, 4>> sizes = {
      {5, 7, 4, 4}, {70, 33, 64, 64}, {101, 67, 20, 33}, {1, 130, 32, 48}};
  for (const auto& [queries, keys, width, value_width] : sizes) {
    TestModel model(13);
    Attributes clears;
    clears.Set("nan_to_zero", int64_t{1});
    Tensor mask = Waves(Shape{queries, keys}, 1.0f, 0.4f);
    std::fill_n(mask.mutable_data<float>(), keys, -std::numeric_limits<float>::infinity());
    model.Input("q", DataType::kFloat, {2, queries, width})
        .Input("k", DataType::kFloat, {2, keys, width})
        .Input("v", DataType::kFloat, {1, keys, value_width})
        .Constant("mask", mask);
    TestModel narrow = model;
    model.Node("FusedAttention", {"q", "k", "v", "mask"}, {"y"}, clears, "onnxd").Output("y");
    Attributes down, up;
    down.Set("to", static_cast<int64_t>(DataType::kBfloat16));
    up.Set("to", static_cast<int64_t>(DataType::kFloat));
    for (const std::string name : {"q", "k", "v"}) {
      narrow.Node("Cast", {name}, {name + "n"}, down);
    }
    narrow.Node("FusedAttention", {"qn", "kn", "vn", "mask"}, {"yn"}, clears, "onnxd");
    narrow.Node("Cast", {"yn"}, {"y"}, up).Output("y");
    const std::vector<Value> inputs = {Waves(Shape{2, queries, width}, 0.7f, 0.1f),
                                       Waves(Shape{2, keys, width}, 0.7f, 0.5f),
                                       Waves(Shape{1, keys, value_width}, 1.0f, 0.3f)};
    const auto a = model.Load(OptimizationLevel::kDisable);
    const auto b = narrow.Load(OptimizationLevel::kDisable);
    ASSERT_TRUE(a.ok()) << a.status().ToString();
    ASSERT_TRUE(b.ok()) << b.status().ToString();
    const auto x = (*a)->Run(inputs, {}), y = (*b)->Run(inputs, {});
    ASSERT_TRUE(x.ok() && y.ok());
    const Tensor &wanted = (*x)[0].tensor(), &got = (*y)[0].tensor();
    for (int64_t i = 0; i < value_width; ++i) EXPECT_EQ(got.data<float>()[i], 0.0f);
    for (int64_t i = 0; i < wanted.ElementCount(); ++i) {
      ASSERT_NEAR(wanted.data<float>()[i], got.data<float>()[i], 0.02) << queries << " " << keys;
    }
  }
}

TEST_P(ReducedPrecisionTest, Float32LeavesTheGraphAlone) {
  TestModel model = Products();
  ASSERT_TRUE(Prepare(model, Precision::kFloat32).ok());
  EXPECT_EQ(Operators(model), "MatMulBiasActivation MatMulBiasActivation");
}

TEST_P(ReducedPrecisionTest, Bfloat16IsNear) {
  for (const int threads : {1, 3}) {
    const Tensor rows = Waves(Shape{40, 256}, 1.0f, 0.9f);
    EXPECT_GT(Measure(Products, Precision::kBfloat16, rows, threads).cosine, 0.9999);
    const Tensor image = Waves(Shape{1, 16, 12, 12}, 1.0f, 0.9f);
    EXPECT_GT(Measure(Convolutions, Precision::kBfloat16, image, threads).cosine, 0.9999);
    // Sums of so many waves cancel: bfloat16 gives 0.9974, by oneDNN's convolutions as well.
    const Tensor small = Waves(Shape{2, 72, 7, 8}, 1.0f, 0.37f);
    EXPECT_GT(Measure(SmallImages, Precision::kBfloat16, small, threads).cosine, 0.997);
  }
}

TEST_P(ReducedPrecisionTest, ThreeProductsOfBfloat16AreNearlyFloat32) {
  TestModel model = Products();
  ASSERT_TRUE(Prepare(model, Precision::kBfloat16x3).ok());
  EXPECT_EQ(Operators(model), "MatMulBfloat16x3 MatMulBfloat16x3");
  for (const int threads : {1, 3}) {
    const Nearness nearness =
        Measure(Products, Precision::kBfloat16x3, Waves(Shape{40, 256}, 1.0f, 0.9f), threads);
    EXPECT_LT(nearness.error, 1e-5);
    EXPECT_GT(nearness.cosine, 0.999999);
  }
}

class SessionPrecision : public math::WithSimd {};

TEST_P(SessionPrecision, FallsBackWhereTheProcessorIsNoFaster) {
  for (const Precision precision : {Precision::kBfloat16, Precision::kBfloat16x3}) {
    SessionOptions options = DefaultSession();
    options.precision = precision;
    const bool fast = options.providers.back()->Computes(precision);
    TestModel model = Products();
    const auto session = InferenceSession::FromModel(std::move(model.model()), std::move(options));
    ASSERT_TRUE(session.ok());
    const auto plain = Products().Load();
    const std::vector<Value> inputs = {Waves(Shape{40, 256}, 1.0f, 0.9f)};
    const auto a = (*plain)->Run(inputs, {}), b = (*session)->Run(inputs, {});
    ASSERT_TRUE(a.ok() && b.ok());
    const Nearness nearness = Compare((*a)[0].tensor(), (*b)[0].tensor());
    if (fast) {
      EXPECT_GT(nearness.cosine, 0.999);
    } else {
      EXPECT_EQ(nearness.error, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, ReducedPrecisionTest, math::EverySimdName());
INSTANTIATE_TEST_SUITE_P(Sets, Bfloat16Attention, math::EverySimdName());
INSTANTIATE_TEST_SUITE_P(Sets, SessionPrecision, math::EverySimdName());

TEST(Precision, NamesGoBothWays) {
  for (const char* name : {"fp32", "bf16", "bf16x3"}) {
    ASSERT_TRUE(PrecisionFromName(name).has_value());
    EXPECT_EQ(PrecisionName(*PrecisionFromName(name)), name);
  }
  EXPECT_FALSE(PrecisionFromName("fp64").has_value());
}

}  // namespace
}  // namespace onnxd
