// The pass that computes the fused provider's products in 16 bits.
#include "runtime/providers/fused/passes/narrow_products.h"

#include "runtime/ops/shape_inference.h"
#include "runtime/session/model_preparation.h"
#include "tests/support/fused_testing.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// A small network: convolutions with a residual, then a product with its bias and activation.
TestModel Network() {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 8, 6, 6});
  model.Constant("w", Sines(Shape{8, 8, 3, 3}, 0.05f)).Constant("b", Sines(Shape{8}, 0.3f));
  model.Constant("v", Sines(Shape{288, 20}, 0.05f)).Constant("c", Sines(Shape{20}, 0.2f));
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>(4, 1));
  model.Node("Conv", {"x", "w", "b"}, {"h"}, pads).Node("Relu", {"h"}, {"r"});
  model.Node("Conv", {"r", "w", "b"}, {"g"}, pads).Node("Add", {"g", "x"}, {"s"});
  model.Node("Flatten", {"s"}, {"f"}).Node("Gemm", {"f", "v", "c"}, {"p"});
  model.Node("Softmax", {"p"}, {"y"}).Output("y");
  return model;
}

TEST(NarrowProducts, HandEachOtherNarrowValues) {
  for (const auto& [precision, type] : {std::pair(Precision::kFloat16, DataType::kFloat16),
                                        {Precision::kBfloat16, DataType::kBfloat16}}) {
    TestModel model = Network();
    ASSERT_TRUE(InferGraph(model.graph()).ok());
    PassContext context;
    context.precision = precision;
    ASSERT_TRUE(*NarrowProducts().Run(model.graph(), context));
    ASSERT_TRUE(model.graph().Verify().ok());
    for (const Node& node : model.graph().nodes) {
      if (node.op_type != "Conv" && node.op_type != "Gemm") continue;
      for (const ValueId id : node.inputs) {
        EXPECT_EQ(model.graph().value(id).type.element, type) << node.op_type;
      }
    }
    // A second time there is nothing left to do.
    EXPECT_FALSE(*NarrowProducts().Run(model.graph(), context));
  }
}

TEST(NarrowProducts, LeaveOtherPrecisions) {
  TestModel model = Network();
  ASSERT_TRUE(InferGraph(model.graph()).ok());
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16x3}) {
    PassContext context;
    context.precision = precision;
    EXPECT_FALSE(*NarrowProducts().Run(model.graph(), context));
  }
}

// Passes run again with those of later providers, whose products are not the device's.
TEST(NarrowProducts, LeaveWhatOthersCompute) {
  TestModel model = Network();
  ASSERT_TRUE(InferGraph(model.graph()).ok());
  PassContext context;
  context.precision = Precision::kBfloat16;
  context.owns = [](const Node&) { return false; };
  EXPECT_FALSE(*NarrowProducts().Run(model.graph(), context));
}

TEST(NarrowProducts, LeaveLayersThatStayFloat) {
  TestModel model = Network();
  ASSERT_TRUE(InferGraph(model.graph()).ok());
  PassContext context;
  context.precision = Precision::kFloat16;
  ASSERT_TRUE(*NarrowProducts({"g", "p"}).Run(model.graph(), context));
  std::string narrow;
  for (const Node& node : model.graph().nodes) {
    if (!IsNarrowableProduct(node)) continue;
    narrow += model.graph().value(node.outputs[0]).name + " ";
  }
  EXPECT_EQ(narrow, "h_fp16 g p ");
}

TEST(NarrowProducts, AreNearTheCpusFloats) {
  for (const int64_t batch : {1, 3}) {
    const std::vector<Value> inputs = {Sines(Shape{batch, 8, 6, 6}, 1)};
    ExpectSameOnDevice(Network(), inputs, true, Precision::kFloat16, 1e-3f);
    ExpectSameOnDevice(Network(), inputs, true, Precision::kBfloat16, 1e-2f);
  }
}

// What the CPU computes beside the device stays float where the processor is no faster.
TEST(NarrowProducts, LeaveTheCpuItsOwnPrecision) {
  SessionOptions options = DefaultSession();
  options.precision = Precision::kFloat16;
  options.providers = *MakeProviders({"fused", "cpu"});
  if (options.providers.size() < 2) GTEST_SKIP() << "no OpenCL on this machine";
  EXPECT_EQ(EffectivePrecision(options), Precision::kFloat16);
  options.providers = *MakeProviders({"cpu"});
  EXPECT_EQ(EffectivePrecision(options), Precision::kFloat32);
}

}  // namespace
}  // namespace onnxd
