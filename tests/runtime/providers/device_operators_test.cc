// DeformConv, Col2Im, Einsum and ReverseSequence on a device compute what the CPU does.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "tests/support/device_testing.h"

namespace onnxd {
namespace {

Tensor Waves(const Shape& shape, float phase, float scale = 1) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * std::sin(static_cast<float>(i) * 0.37f + phase);
  }
  return tensor;
}

using List = std::vector<int64_t>;

class DeviceOperators : public testing::Test {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  Result<std::vector<Value>> OnDevice(const TestModel& model, const std::vector<Value>& inputs) {
    return RunOnDevice(model, inputs, MakeGpuProvider("opencl", device_));
  }

  void ExpectSame(const TestModel& model, const std::vector<Value>& inputs,
                  const std::string& what = "") {
    SCOPED_TRACE(what);
    ExpectSameAsCpu(model, inputs, MakeGpuProvider("opencl", device_), 2e-5);
  }

  std::shared_ptr<GpuDevice> device_;
};

TEST_F(DeviceOperators, DeformConvFollowsOffsetsOfItsGroups) {
  for (const bool masked : {false, true}) {
    TestModel model(22);
    std::vector<Value> inputs;
    const auto input = [&](const std::string& name, const Shape& shape, float scale) {
      model.Input(name, DataType::kFloat, ToSymbolic(shape));
      inputs.push_back(Waves(shape, static_cast<float>(inputs.size()), scale));
    };
    input("x", Shape{2, 8, 9, 11}, 1);
    input("w", Shape{12, 4, 3, 3}, 0.5f);
    input("offset", Shape{2, 4 * 9 * 2, 5, 11}, 3);  // some lead outside
    input("b", Shape{12}, 1);
    if (masked) input("mask", Shape{2, 4 * 9, 5, 11}, 1);
    Attributes attributes;
    attributes.Set("group", int64_t{2});
    attributes.Set("offset_group", int64_t{4});
    attributes.Set("strides", List{2, 1});
    attributes.Set("pads", List{1, 1, 1, 1});
    model.Node("DeformConv", {"x", "w", "offset", "b", masked ? "mask" : ""}, {"y"}, attributes);
    ExpectSame(model.Output("y"), inputs);
  }
}

TEST_F(DeviceOperators, Col2ImSumsWhatPatchesShare) {
  struct Case {
    List image, block, strides, dilations, pads;
    int64_t positions;
  };
  for (const Case& c :
       {Case{{5, 6}, {2, 3}, {1, 2}, {1, 1}, {0, 1, 0, 1}, 12}, Case{{7}, {3}, {2}, {2}, {1, 1}, 3},
        Case{{3, 4, 5}, {2, 2, 2}, {1, 1, 1}, {1, 2, 1}, {0, 0, 0, 0, 0, 0}, 16}}) {
    int64_t taps = 1;
    for (const int64_t extent : c.block) taps *= extent;
    const Shape x{2, 3 * taps, c.positions};
    TestModel model(22);
    model.Input("x", DataType::kFloat, ToSymbolic(x));
    const auto axes = static_cast<int64_t>(c.image.size());
    model.Constant("image", Tensor::Of<int64_t>(Shape{axes}, c.image));
    model.Constant("block", Tensor::Of<int64_t>(Shape{axes}, c.block));
    Attributes attributes;
    attributes.Set("strides", c.strides);
    attributes.Set("dilations", c.dilations);
    attributes.Set("pads", c.pads);
    model.Node("Col2Im", {"x", "image", "block"}, {"y"}, attributes);
    ExpectSame(model.Output("y"), {Waves(x, 0)}, StrCat(axes, " axes"));
  }
}

TEST_F(DeviceOperators, EinsumSumsOverWhatTheOutputLeavesOut) {
  const auto expect = [&](const std::string& equation, const std::vector<Shape>& shapes) {
    TestModel model(17);
    std::vector<Value> inputs;
    std::vector<std::string> names;
    for (const Shape& shape : shapes) {
      names.push_back(StrCat("x", names.size()));
      model.Input(names.back(), DataType::kFloat, ToSymbolic(shape));
      inputs.push_back(Waves(shape, static_cast<float>(names.size())));
    }
    Attributes attributes;
    attributes.Set("equation", equation);
    model.Node("Einsum", names, {"y"}, attributes);
    ExpectSame(model.Output("y"), inputs, equation);
  };
  expect("bhid,bhjd->bhij", {Shape{2, 3, 4, 5}, Shape{2, 3, 6, 5}});
  expect("ii->i", {Shape{5, 5}});
  expect("ijij->", {Shape{3, 4, 3, 4}});
  expect("ij,jk,kl->il", {Shape{2, 3}, Shape{3, 4}, Shape{4, 5}});
  expect("...ij,...jk->...ik", {Shape{2, 1, 3, 4}, Shape{5, 4, 6}});
  expect("ab->ba", {Shape{3, 4}});
}

TEST_F(DeviceOperators, EinsumRefusesMoreTermsThanCanBeCounted) {
  constexpr int64_t kMany = int64_t{1} << 17;
  TestModel model(17);
  for (const char* name : {"a", "b", "c", "d"}) model.Input(name, DataType::kFloat, {kMany});
  Attributes attributes;
  attributes.Set("equation", std::string("a,b,c,d->"));
  model.Node("Einsum", {"a", "b", "c", "d"}, {"y"}, attributes).Output("y");
  const Tensor x = Waves(Shape{kMany}, 0);
  const auto refused = OnDevice(model, {x, x, x, x});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
}

// Shapes that only runs know: the slope of PRelu stretches to x, x never to the slope.
TEST_F(DeviceOperators, ASlopeThatDoesNotBroadcastIsRefused) {
  TestModel model(17);
  const auto free = [](const char* name) { return Dimension::Symbol(name); };
  model.Input("x", DataType::kFloat, {free("rows"), free("columns")});
  model.Input("slope", DataType::kFloat, {free("a"), free("b")});
  model.Node("PRelu", {"x", "slope"}, {"y"}).Output("y");
  const Tensor x = Waves(Shape{2, 3}, 0);
  EXPECT_TRUE(OnDevice(model, {x, Waves(Shape{2, 1}, 1)}).ok());
  const auto refused = OnDevice(model, {x, Waves(Shape{2, 4}, 1)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

// Its kernel takes a scale for each element of a row; the operators that it stands for any.
TEST_F(DeviceOperators, ANormalizationWhoseScaleIsBroadcastComesInParts) {
  TestModel model(17);
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 3, 4});
  model.Constant("scale", Waves(Shape{4}, 1));
  Attributes axis;
  axis.Set("axis", int64_t{1});
  model.Node("LayerNormalization", {"x", "scale"}, {"y"}, axis).Output("y");
  ExpectSame(model, {Waves(Shape{2, 3, 4}, 0)});
}

TEST_F(DeviceOperators, ReverseSequenceTurnsTheBeginningOfEachLine) {
  for (const int64_t time : {0, 1}) {
    TestModel model(17);
    model.Input("x", DataType::kFloat, {4, 4, 3}).Input("lengths", DataType::kInt64, {4});
    Attributes attributes;
    attributes.Set("time_axis", time);
    attributes.Set("batch_axis", 1 - time);
    model.Node("ReverseSequence", {"x", "lengths"}, {"y"}, attributes).Output("y");
    ExpectSame(model, {Waves(Shape{4, 4, 3}, 0), Ints(Shape{4}, {4, 0, 1, 3})});
    const auto refused = OnDevice(model, {Waves(Shape{4, 4, 3}, 0), Ints(Shape{4}, {4, 0, 5, 3})});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.status().message().find("length 5"), std::string::npos)
        << refused.status().ToString();
  }
}

}  // namespace
}  // namespace onnxd
