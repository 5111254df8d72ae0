// Recurrent operators.
#include <algorithm>
#include <cmath>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// With all weights zero every gate is sigmoid(0) = 0.5 and the candidate tanh(0) = 0, so each step
// halves the cell. The node leaves out sequence_lens and P: operands that it does not list are
// absent.
TEST(Lstm, HalvesItsCellWhenAllWeightsAreZero) {
  const auto zeros = [](const Shape& shape) {
    Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
    std::fill_n(tensor.mutable_data<float>(), shape.ElementCount(), 0.0f);
    return tensor;
  };
  const Tensor none, cell = Floats(Shape{1, 1, 2}, {4, -8});
  for (const unsigned constants : {0u, 0b110u}) {
    const auto outputs = RunOp("LSTM",
                               {zeros(Shape{3, 1, 5}), zeros(Shape{1, 8, 5}), zeros(Shape{1, 8, 2}),
                                none, none, zeros(Shape{1, 1, 2}), cell},
                               With({{"hidden_size", int64_t{2}}}),
                               {.opset = 14, .constants = constants, .outputs = 3});
    const F c = Elements(outputs, 2), h = Elements(outputs, 1);
    ASSERT_EQ(c.size(), 2u);
    EXPECT_NEAR(c[0], 0.5f, 1e-6);
    EXPECT_NEAR(c[1], -1.0f, 1e-6);
    EXPECT_NEAR(h[1], 0.5f * std::tanh(-1.0f), 1e-6);
  }
}

TEST(Recurrent, RefusesMoreStepsThanWorkingMemoryCanBeCountedFor) {
  constexpr int64_t kMany = int64_t{1} << 20;  // of rows without an element
  TestModel model(14);
  model.Input("x", DataType::kFloat, {kMany, kMany, 0});
  model.Input("w", DataType::kFloat, {1, 4 * 1024, 0});
  model.Input("r", DataType::kFloat, {1, 4 * 1024, 1024});
  model.Node("LSTM", {"x", "w", "r"}, {"", "h"}, With({{"hidden_size", int64_t{1024}}}))
      .Output("h");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  std::vector<Value> inputs;
  for (const Shape& shape : {Shape{kMany, kMany, 0}, Shape{1, 4096, 0}, Shape{1, 4096, 1024}}) {
    inputs.emplace_back(Tensor::Create(DataType::kFloat, shape).value());
  }
  const auto refused = (*session)->Run(inputs, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("too many elements"), std::string::npos)
      << refused.status().ToString();
}

}  // namespace
}  // namespace onnxd
