// Precisions below float32: what the pass makes of a graph, how near the results are, and what a
// machine does that computes them no faster. oneDNN emulates bfloat16 with AVX-512, so that the
// kernels run where no session would choose them.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/math/simd.h"
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

class ReducedPrecisionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ProviderPass("reduced_precision") == nullptr) GTEST_SKIP() << "built without oneDNN";
    if (math::CurrentSimd().name.substr(0, 6) != "avx512") {
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
    return Compare((*a)[0].tensor(), (*b)[0].tensor());
  }
};

TEST_F(ReducedPrecisionTest, NeighboursHandEachOtherBfloat16) {
  TestModel products = Products();
  ASSERT_TRUE(Prepare(products, Precision::kBfloat16).ok());
  EXPECT_EQ(Operators(products), "Cast MatMulBiasActivation MatMulBiasActivation Cast");
  TestModel convolutions = Convolutions();
  ASSERT_TRUE(Prepare(convolutions, Precision::kBfloat16).ok());
  EXPECT_EQ(Operators(convolutions),
            "Transpose Cast ConvChannelsLast ConvChannelsLast Cast Transpose");
}

TEST_F(ReducedPrecisionTest, WhatIsNotAProductStaysFloat) {
  TestModel model;
  model.Input("x", DataType::kFloat, {40, 256})
      .Constant("w", Waves(Shape{256, 256}, 0.06f, 0.1f))
      .Node("Softmax", {"x"}, {"s"})
      .Node("MatMul", {"s", "w"}, {"y"})
      .Node("Softmax", {"y"}, {"z"})
      .Output("z");
  ASSERT_TRUE(Prepare(model, Precision::kBfloat16).ok());
  EXPECT_EQ(Operators(model), "Softmax Cast MatMulBiasActivation Cast Softmax");
  for (const Node& node : model.graph().nodes) {
    if (!node.Is("Softmax")) continue;
    EXPECT_EQ(model.graph().value(node.inputs[0]).type.element, DataType::kFloat);
  }
}

TEST_F(ReducedPrecisionTest, Float32LeavesTheGraphAlone) {
  TestModel model = Products();
  ASSERT_TRUE(Prepare(model, Precision::kFloat32).ok());
  EXPECT_EQ(Operators(model), "MatMulBiasActivation MatMulBiasActivation");
}

TEST_F(ReducedPrecisionTest, Bfloat16IsNear) {
  for (const int threads : {1, 3}) {
    const Tensor rows = Waves(Shape{40, 256}, 1.0f, 0.9f);
    EXPECT_GT(Measure(Products, Precision::kBfloat16, rows, threads).cosine, 0.9999);
    const Tensor image = Waves(Shape{1, 16, 12, 12}, 1.0f, 0.9f);
    EXPECT_GT(Measure(Convolutions, Precision::kBfloat16, image, threads).cosine, 0.9999);
  }
}

TEST_F(ReducedPrecisionTest, ThreeProductsOfBfloat16AreNearlyFloat32) {
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

TEST(Precision, SessionFallsBackWhereTheProcessorIsNoFaster) {
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

TEST(Precision, NamesGoBothWays) {
  for (const char* name : {"fp32", "bf16", "bf16x3"}) {
    ASSERT_TRUE(PrecisionFromName(name).has_value());
    EXPECT_EQ(PrecisionName(*PrecisionFromName(name)), name);
  }
  EXPECT_FALSE(PrecisionFromName("fp64").has_value());
}

}  // namespace
}  // namespace onnxd
