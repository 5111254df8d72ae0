// DynamicQuantizeLSTM of constant weights, in bytes, against its body of floats, which weights
// that are inputs take.
#include <gtest/gtest.h>

#include "tests/support/every_simd.h"
#include "tests/support/quantized_testing.h"

namespace onnxd {
namespace {

constexpr int64_t kSteps = 6, kInput = 21, kHidden = 19;

struct Case {
  bool is_signed, per_column;
  int64_t directions, batch;
};

Tensor FormatNumbers(const Case& c, DataType type, int64_t count, int zero) {
  const Shape shape = c.per_column ? Shape{c.directions, count} : Shape{c.directions};
  Tensor tensor = *Tensor::Create(type, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    if (type == DataType::kFloat) {
      tensor.mutable_data<float>()[i] = 0.002f * static_cast<float>(1 + i % 3);
    } else {
      static_cast<uint8_t*>(tensor.mutable_raw())[i] = static_cast<uint8_t>(zero + i % 2);
    }
  }
  return tensor;
}

std::vector<Value> Outputs(const Case& c, bool constant) {
  constexpr int64_t kColumns = 4 * kHidden;
  TestModel model(17);
  model.Input("x", DataType::kFloat, {kSteps, c.batch, kInput});
  model.Input("lengths", DataType::kInt32, {c.batch});
  Tensor lengths = *Tensor::Create(DataType::kInt32, Shape{c.batch});
  for (int64_t i = 0; i < c.batch; ++i) {
    lengths.mutable_data<int32_t>()[i] = static_cast<int32_t>(kSteps - i);
  }
  std::vector<Value> inputs = {Ramp(Shape{kSteps, c.batch, kInput}, 0.1f), lengths};
  const DataType type = c.is_signed ? DataType::kInt8 : DataType::kUint8;
  const auto weights = [&](const std::string& name, int64_t depth, unsigned seed) {
    const Tensor bytes = Bytes(Shape{c.directions, depth, kColumns}, c.is_signed, seed);
    if (constant) {
      model.Constant(name, bytes);
    } else {
      model.Input(name, type, {c.directions, depth, kColumns});
      inputs.push_back(bytes);
    }
    model.Constant(name + "_s", FormatNumbers(c, DataType::kFloat, kColumns, 0));
    model.Constant(name + "_z", FormatNumbers(c, type, kColumns, c.is_signed ? 3 : 125));
  };
  weights("w", kInput, 5);
  weights("r", kHidden, 6);
  model.Constant("b", Ramp(Shape{c.directions, 2 * kColumns}, 0.05f));
  Attributes attributes = One("hidden_size", kHidden);
  if (c.directions == 2) attributes.Set("direction", std::string("bidirectional"));
  model.Node("DynamicQuantizeLSTM",
             {"x", "w", "r", "b", "lengths", "", "", "", "w_s", "w_z", "r_s", "r_z"},
             {"y", "h", "c"}, std::move(attributes), kMicrosoft);
  model.Output("y").Output("h").Output("c");
  const auto session = model.Load();
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  if (!session.ok()) return {};
  auto outputs = (*session)->Run(inputs, {});
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  return outputs.ok() ? *std::move(outputs) : std::vector<Value>{};
}

class RecurrentBytes : public math::WithSimd {};

TEST_P(RecurrentBytes, AreAsNearAsTheirStepsAllow) {
  for (const Case& c : {Case{true, false, 1, 1}, Case{false, true, 2, 1}, Case{true, true, 2, 3},
                        Case{false, false, 1, 3}}) {
    const auto bytes = Outputs(c, true), floats = Outputs(c, false);
    ASSERT_EQ(bytes.size(), 3u);
    ASSERT_EQ(floats.size(), 3u);
    bool differ = false;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const Tensor &a = bytes[i].tensor(), &b = floats[i].tensor();
      ASSERT_EQ(a.shape(), b.shape());
      double largest = 0;
      for (int64_t j = 0; j < a.ElementCount(); ++j) {
        ASSERT_NEAR(ElementAt(a, j), ElementAt(b, j), 0.03) << "output " << i << ", element " << j;
        differ = differ || ElementAt(a, j) != ElementAt(b, j);
        largest = std::max(largest, std::abs(ElementAt(b, j)));
      }
      EXPECT_GT(largest, 0.2);
    }
    EXPECT_TRUE(differ) << "both were computed in the same way";
  }
}

TEST(QuantizedLstm, RefusesFormatsThatDoNotFitTheColumns) {
  TestModel model(17);
  model.Input("x", DataType::kFloat, {2, 1, 3});
  for (const std::string name : {"w", "r"}) {
    model.Constant(name, Bytes(Shape{1, 3, 12}, true, 1));
    model.Constant(name + "_s", Scales(5, 0.1f)).Constant(name + "_z", Zeros(DataType::kInt8, 1));
  }
  model.Node("DynamicQuantizeLSTM", {"x", "w", "r", "", "", "", "", "", "w_s", "w_z", "r_s", "r_z"},
             {"y"}, One("hidden_size", 3), kMicrosoft);
  const auto session = model.Output("y").Load();
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.status().message().find("expected a number per direction"), std::string::npos)
      << session.status().ToString();
}

INSTANTIATE_TEST_SUITE_P(Sets, RecurrentBytes, math::EverySimdName());

}  // namespace
}  // namespace onnxd
