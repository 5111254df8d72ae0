// Convolutions with the channels last on a device, and what lies between them.
#include <gmock/gmock.h>

#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/fusion/channels_last.h"
#include "runtime/providers/fused/fused_provider.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/tensor/convert.h"
#include "tests/support/cast_model.h"
#include "tests/support/device_testing.h"

namespace onnxd {
namespace {

using testing::HasSubstr;
using testing::Not;

class DeviceLayout : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  std::string AfterLayout(TestModel model) {
    const ChannelsLastPass pass(ChannelsLastOnDevice(*device_));
    return After(model, &pass);
  }

  std::shared_ptr<GpuDevice> device_;
};

Attributes Sizes(std::vector<int64_t> kernel, int64_t stride, int64_t pad, int64_t dilation = 1) {
  Attributes attributes;
  attributes.Set("kernel_shape", std::move(kernel));
  attributes.Set("strides", std::vector<int64_t>{stride, stride});
  attributes.Set("pads", std::vector<int64_t>{pad, pad, pad, pad});
  attributes.Set("dilations", std::vector<int64_t>{dilation, dilation});
  return attributes;
}

// The beginning and the end of a residual network: 3 channels, a pool, a block, and the mean.
TestModel Residual(DataType type, std::vector<Value>& inputs, int64_t groups = 1) {
  CastModel cast(type);
  const std::string x = cast.Input(Shape{2, 3, 13, 11});
  TestModel& model = cast.model();
  const auto constant = [&](const std::string& name, const Shape& shape, float scale) {
    Tensor tensor = Waves(shape, scale);
    for (float& value :
         std::span(tensor.mutable_data<float>(), static_cast<size_t>(shape.ElementCount()))) {
      value *= scale;
    }
    model.Constant(name, *Converted(tensor, type));
  };
  constant("w0", Shape{16, 3, 3, 3}, 0.25f);
  constant("b0", Shape{16}, 0.5f);
  constant("w1", Shape{24, 16, 1, 1}, 0.25f);
  constant("b1", Shape{24}, 0.5f);
  constant("w2", Shape{24, 24 / groups, 3, 3}, 0.125f);
  constant("w3", Shape{24, 16, 1, 1}, 0.25f);
  constant("b3", Shape{24}, 0.25f);
  model.Node("Conv", {x, "w0", "b0"}, {"c0"}, Sizes({3, 3}, 2, 1)).Node("Relu", {"c0"}, {"r0"});
  model.Node("MaxPool", {"r0"}, {"p"}, Sizes({3, 3}, 2, 1));
  model.Node("Conv", {"p", "w1", "b1"}, {"c1"}).Node("Relu", {"c1"}, {"r1"});
  Attributes sizes = Sizes({3, 3}, 1, 2, 2);
  sizes.Set("group", groups);
  model.Node("Conv", {"r1", "w2"}, {"c2"}, sizes);
  model.Node("Conv", {"p", "w3", "b3"}, {"c3"}).Node("Add", {"c2", "c3"}, {"s"});
  model.Node("Relu", {"s"}, {"r2"}).Node("AveragePool", {"r2"}, {"a"}, Sizes({2, 2}, 1, 0));
  model.Node("GlobalAveragePool", {"a"}, {"g"});
  inputs = cast.inputs();
  return cast.Answer("g");
}

TEST_P(DeviceLayout, GoesFromTheFirstConvolutionToTheMean) {
  std::vector<Value> inputs;
  const TestModel model = Residual(GetParam(), inputs);
  // Three channels get five more.
  EXPECT_EQ(AfterLayout(model),
            "Cast Transpose Pad ConvChannelsLast Relu MaxPoolChannelsLast ConvChannelsLast Relu "
            "ConvChannelsLast ConvChannelsLast Add Relu AveragePoolChannelsLast "
            "GlobalAveragePoolChannelsLast Cast Transpose");
  const double tolerance = GetParam() == DataType::kFloat16 ? 4e-3 : 3e-2;
  for (const bool fused : {false, true}) {
    ExpectSameAsCpu(model, inputs,
                    fused ? MakeFusedProvider(device_) : MakeGpuProvider("opencl", device_),
                    tolerance, OptimizationLevel::kAll);
  }
}

// What a vision transformer begins with.
TestModel OfPatches(DataType type, const Attributes& sizes, bool has_bias,
                    std::vector<Value>& inputs) {
  CastModel cast(type);
  const std::string x = cast.Input(Shape{2, 3, 8, 12});
  TestModel& model = cast.model();
  model.Constant("w", *Converted(Waves(Shape{16, 3, 4, 4}, 0.25f), type));
  model.Constant("b", *Converted(Waves(Shape{16}, 0.25f), type));
  model.Node("Conv",
             has_bias ? std::vector<std::string>{x, "w", "b"} : std::vector<std::string>{x, "w"},
             {"c"}, sizes);
  model.Node("Relu", {"c"}, {"r"});
  inputs = cast.inputs();
  return cast.Answer("r");
}

TEST_P(DeviceLayout, PatchesAreRowsOfAProduct) {
  const double tolerance = GetParam() == DataType::kFloat16 ? 4e-3 : 3e-2;
  for (const bool has_bias : {true, false}) {
    std::vector<Value> inputs;
    const TestModel model = OfPatches(GetParam(), Sizes({4, 4}, 4, 0), has_bias, inputs);
    EXPECT_EQ(AfterLayout(model), StrCat("Cast Reshape Transpose Reshape MatMul ",
                                         has_bias ? "Add " : "", "Relu Cast Transpose"));
    for (const bool fused : {false, true}) {
      ExpectSameAsCpu(model, inputs,
                      fused ? MakeFusedProvider(device_) : MakeGpuProvider("opencl", device_),
                      tolerance, OptimizationLevel::kAll);
    }
  }
  std::vector<Value> inputs;
  for (const Attributes& sizes : {Sizes({4, 4}, 2, 0), Sizes({4, 4}, 4, 2)}) {
    EXPECT_THAT(AfterLayout(OfPatches(GetParam(), sizes, true, inputs)),
                HasSubstr("ConvChannelsLast"));
  }
}

// As the masks of a segmentation network and the distances of a detector are computed.
TEST_P(DeviceLayout, OneFilterIsNoDepthwiseConvolution) {
  const double tolerance = GetParam() == DataType::kFloat16 ? 4e-3 : 3e-2;
  for (const int64_t kernel : {1, 3}) {
    CastModel cast(GetParam());
    const std::string x = cast.Input(Shape{2, 16, 13, 11});
    cast.model().Constant("w", *Converted(Waves(Shape{1, 16, kernel, kernel}, 0.25f), GetParam()));
    cast.model().Node("Conv", {x, "w"}, {"c"}, Sizes({kernel, kernel}, 1, kernel / 2));
    const std::vector<Value> inputs = cast.inputs();
    const TestModel model = cast.Answer("c");
    EXPECT_EQ(AfterLayout(model), "Cast Transpose ConvChannelsLast Cast Transpose");
    for (const bool fused : {false, true}) {
      ExpectSameAsCpu(model, inputs,
                      fused ? MakeFusedProvider(device_) : MakeGpuProvider("opencl", device_),
                      tolerance, OptimizationLevel::kAll);
    }
  }
}

// An image of so many channels, a depthwise convolution, and a 1 x 1 one behind it.
TestModel Separable(DataType type, int64_t channels, Attributes sizes, std::vector<Value>& inputs) {
  CastModel cast(type);
  const std::string x = cast.Input(Shape{2, channels, 13, 11});
  const int64_t kernel = sizes.Ints("kernel_shape")[0];
  TestModel& model = cast.model();
  const auto constant = [&](const std::string& name, const Shape& shape) {
    Tensor tensor = Waves(shape, 0.25f);
    model.Constant(name, *Converted(tensor, type));
  };
  constant("w0", Shape{channels, 1, kernel, kernel});
  constant("b0", Shape{channels});
  constant("w1", Shape{16, channels, 1, 1});
  sizes.Set("group", channels);
  model.Node("Conv", {x, "w0", "b0"}, {"c0"}, sizes);
  model.Node("HardSwish", {"c0"}, {"h"}).Node("Conv", {"h", "w1"}, {"c1"});
  inputs = cast.inputs();
  return cast.Answer("c1");
}

TEST_P(DeviceLayout, DepthwiseConvolutionsAreComputedInIt) {
  const double tolerance = GetParam() == DataType::kFloat16 ? 8e-3 : 6e-2;
  for (const int64_t channels : {24, 8, 6, 5}) {
    for (const Attributes& sizes :
         {Sizes({3, 3}, 1, 1), Sizes({5, 5}, 2, 2), Sizes({3, 3}, 1, 2, 2), Sizes({7, 7}, 1, 0),
          Sizes({3, 3}, 3, 0), Sizes({3, 3}, 9, 2)}) {
      std::vector<Value> inputs;
      const TestModel model = Separable(GetParam(), channels, sizes, inputs);
      const std::string pad = channels % 8 == 0 ? "" : "Pad ";
      EXPECT_EQ(AfterLayout(model), "Cast Transpose ConvChannelsLast HardSwish " + pad +
                                        "ConvChannelsLast Cast Transpose");
      for (const bool fused : {false, true}) {
        ExpectSameAsCpu(model, inputs,
                        fused ? MakeFusedProvider(device_) : MakeGpuProvider("opencl", device_),
                        tolerance, OptimizationLevel::kAll);
      }
    }
  }
  const auto nvrtc = cuda::OpenNvrtc();
  int programs = 0;
  for (const std::string& source : device_->sources()) {
    if (source.find("KERNEL depthwise_product") == std::string::npos) continue;
    if (++programs > 2 || !nvrtc.ok()) continue;
    for (const int capability : {80, 90}) {
      const auto cubin =
          cuda::CompileToCubin(**nvrtc, StrCat(Prelude(Dialect::kCuda), source), capability);
      EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
    }
  }
  EXPECT_GT(programs, 0);
}

// Their columns are written out in the kernel: a model cannot make that as long as it likes.
TEST_P(DeviceLayout, IsNotForDepthwiseWindowsThatAreWide) {
  const double tolerance = GetParam() == DataType::kFloat16 ? 8e-3 : 6e-2;
  for (const Attributes& sizes :
       {Sizes({17, 17}, 1, 8), Sizes({3, 3}, 1, 8, 8), Sizes({3, 3}, 1, 100000, 100000)}) {
    std::vector<Value> inputs;
    const TestModel model = Separable(GetParam(), 8, sizes, inputs);
    EXPECT_THAT(AfterLayout(model), Not(HasSubstr("ChannelsLast")));
    ExpectSameAsCpu(model, inputs, MakeFusedProvider(device_), tolerance, OptimizationLevel::kAll);
  }
}

TEST_P(DeviceLayout, IsNotForGroups) {
  std::vector<Value> inputs;
  const TestModel model = Residual(GetParam(), inputs, 2);
  EXPECT_THAT(AfterLayout(model), Not(HasSubstr("ChannelsLast")));
  ExpectSameAsCpu(model, inputs, MakeFusedProvider(device_),
                  GetParam() == DataType::kFloat16 ? 4e-3 : 3e-2, OptimizationLevel::kAll);
}

// GELU of 16 bits takes a shorter way: as exact as the type is.
TEST_P(DeviceLayout, GeluOf16BitsIsAsExactAsTheyAre) {
  CastModel cast(GetParam());
  Attributes none;
  const std::string x = cast.Input(Shape{4001});
  std::vector<Value> inputs = cast.inputs();
  float* numbers = inputs[0].tensor().mutable_data<float>();
  for (int i = 0; i < 4001; ++i) numbers[i] = static_cast<float>(i - 2000) / 200;
  cast.model().Node("Gelu", {x}, {"y"}, none, "com.microsoft");
  const double tolerance = GetParam() == DataType::kFloat16 ? 5e-4 : 4e-3;
  ExpectSameAsCpu(cast.Answer("y"), inputs, MakeFusedProvider(device_), tolerance,
                  OptimizationLevel::kAll);
}

INSTANTIATE_TEST_SUITE_P(Types, DeviceLayout,
                         testing::Values(DataType::kFloat16, DataType::kBfloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
