// LSTM, GRU and RNN on a device compute what the CPU does.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "tests/support/device_testing.h"

namespace onnxd {
namespace {

constexpr int64_t kSteps = 5, kBatch = 3, kInput = 21, kHidden = 37;

struct Case {
  const char* op;
  const char* direction = "forward";
  bool lengths = false, states = false, batch_first = false;
  Attributes attributes = {};
};

Tensor Waves(const Shape& shape, float phase) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = 0.4f * std::sin(static_cast<float>(i) * 0.37f + phase);
  }
  return tensor;
}

class DeviceRecurrent : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  // Floats in and out; what the operator sees is of the type under test.
  void ExpectSame(const Case& c) {
    const bool is_lstm = std::string_view(c.op) == "LSTM";
    const int64_t gates = is_lstm ? 4 : std::string_view(c.op) == "GRU" ? 3 : 1;
    const int64_t directions = std::string_view(c.direction) == "bidirectional" ? 2 : 1;
    TestModel model(22);
    std::vector<Value> inputs;
    std::vector<std::string> names;
    const auto cast = [&](const std::string& from, const std::string& to, DataType type) {
      Attributes attributes;
      attributes.Set("to", static_cast<int64_t>(type));
      model.Node("Cast", {from}, {to}, attributes);
    };
    const auto add = [&](const std::string& name, const Shape& shape) {
      model.Input(name, DataType::kFloat, ToSymbolic(shape));
      cast(name, name + "c", GetParam());
      names.push_back(name + "c");
      inputs.push_back(Waves(shape, static_cast<float>(inputs.size())));
    };
    add("x", c.batch_first ? Shape{kBatch, kSteps, kInput} : Shape{kSteps, kBatch, kInput});
    add("w", Shape{directions, gates * kHidden, kInput});
    add("r", Shape{directions, gates * kHidden, kHidden});
    add("b", Shape{directions, 2 * gates * kHidden});
    names.emplace_back(c.lengths ? "lengths" : "");
    if (c.lengths) {
      model.Input("lengths", DataType::kInt32, {kBatch});
      inputs.push_back(Tensor::Of<int32_t>(Shape{kBatch}, {2, 5, 0}));
    }
    if (c.states) {
      const Shape state =
          c.batch_first ? Shape{kBatch, directions, kHidden} : Shape{directions, kBatch, kHidden};
      add("h0", state);
      if (is_lstm) {
        add("c0", state);
        add("p", Shape{directions, 3 * kHidden});
      }
    }
    Attributes attributes = c.attributes;
    attributes.Set("direction", std::string(c.direction));
    attributes.Set("hidden_size", kHidden);
    if (c.batch_first) attributes.Set("layout", int64_t{1});
    std::vector<std::string> outputs = {"y", "h"};
    if (is_lstm) outputs.emplace_back("c");
    model.Node(c.op, names, outputs, attributes);
    for (const std::string& name : outputs) {
      cast(name, name + "_out", DataType::kFloat);
      model.Output(name + "_out");
    }
    SCOPED_TRACE(StrCat(c.op, " ", c.direction));
    ExpectSameAsCpu(model, inputs, MakeGpuProvider("opencl", device_),
                    GetParam() == DataType::kFloat ? 1e-5 : 4e-3);
  }

  std::shared_ptr<GpuDevice> device_;
};

TEST_P(DeviceRecurrent, InBothDirections) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      ExpectSame({op, direction});
    }
  }
}

TEST_P(DeviceRecurrent, EndsEachSequenceWhereItEnds) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    ExpectSame({.op = op, .direction = "bidirectional", .lengths = true, .states = true});
  }
}

TEST_P(DeviceRecurrent, WithTheBatchFirst) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    ExpectSame({.op = op,
                .direction = "bidirectional",
                .lengths = true,
                .states = true,
                .batch_first = true});
  }
}

TEST_P(DeviceRecurrent, AsAttributesSay) {
  Attributes linear;
  linear.Set("linear_before_reset", int64_t{1});
  linear.Set("clip", 0.3f);
  ExpectSame({.op = "GRU", .attributes = linear});
  Attributes coupled;
  coupled.Set("input_forget", int64_t{1});
  coupled.Set("clip", 0.3f);
  ExpectSame({.op = "LSTM", .states = true, .attributes = coupled});
}

TEST_P(DeviceRecurrent, ByEveryActivation) {
  for (const char* name : {"Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
                           "HardSigmoid", "Elu", "Softsign", "Softplus", "Sigmoid"}) {
    Attributes attributes;
    attributes.Set("activations", std::vector<std::string>{name, "Tanh"});
    attributes.Set("activation_alpha", std::vector<float>{0.3f, 1.0f});
    attributes.Set("activation_beta", std::vector<float>{0.6f, 1.0f});
    ExpectSame({.op = "RNN", .direction = "bidirectional", .attributes = attributes});
  }
}

TEST_P(DeviceRecurrent, CompilesForNvidia) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  for (const char* op : {"LSTM", "GRU", "RNN"}) ExpectSame({op, "bidirectional"});
  int compiled = 0;
  for (const std::string& source : device_->sources()) {
    if (source.find("KERNEL recurrent_steps") == std::string::npos) continue;
    const auto cubin = cuda::CompileToCubin(**nvrtc, StrCat(Prelude(Dialect::kCuda), source),
                                            80 + compiled % 2 * 10);
    EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
    ++compiled;
  }
  EXPECT_GE(compiled, 3);
}

TEST(DeviceRecurrentLimits, LeavesLargeStatesToTheCpu) {
  const auto device = FindOpenClDevice({});
  if (!device.ok()) GTEST_SKIP() << device.status().ToString();
  constexpr int64_t kLarge = 2049;
  TestModel model(22);
  model.Input("x", DataType::kFloat, {1, 1, 1});
  model.Constant("w", Waves(Shape{1, kLarge, 1}, 0))
      .Constant("r", Waves(Shape{1, kLarge, kLarge}, 0));
  Attributes attributes;
  attributes.Set("hidden_size", kLarge);
  model.Node("RNN", {"x", "w", "r"}, {"y"}, attributes).Output("y");
  SessionOptions options = DefaultSession();
  options.providers.insert(options.providers.begin(), MakeGpuProvider("opencl", *device));
  const auto session = InferenceSession::FromModel(std::move(model.model()), std::move(options));
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  EXPECT_FALSE((*session)->info().nodes_by_provider.contains("opencl"));
}

INSTANTIATE_TEST_SUITE_P(Types, DeviceRecurrent,
                         testing::Values(DataType::kFloat, DataType::kFloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
