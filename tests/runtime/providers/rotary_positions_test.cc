// Rotary embeddings as exporters write them out become one operator, on the CPU and on a device.
#include "runtime/fusion/rotary_positions.h"

#include <gmock/gmock.h>

#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/math/simd.h"
#include "runtime/optimizer/passes/passes.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "tests/support/cast_model.h"
#include "tests/support/device_testing.h"
#include "tests/support/every_simd.h"
#include "tests/support/fused_testing.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

using testing::HasSubstr;

class EverySimdOnRotations : public math::WithSimd {};

TEST_P(EverySimdOnRotations, TurnsEachNumberWithItsPartner) {
  constexpr float kUntouched = -1e9f;
  for (const int64_t half : {1, 2, 3, 8, 16, 29, 48}) {
    const auto size = static_cast<size_t>(2 * half), apart = static_cast<size_t>(half);
    std::vector<float> x(size), cosines(size), sines(size), halves(size + 1, kUntouched);
    std::vector<float> pairs(size + 1, kUntouched);
    for (size_t i = 0; i < size; ++i) {  // whole numbers: exact
      x[i] = static_cast<float>(i * 7 % 19) - 9;
      cosines[i] = static_cast<float>(i * 5 % 17) - 8;
      sines[i] = static_cast<float>(i * 3 % 13) - 6;
    }
    const math::Simd& simd = math::CurrentSimd();
    simd.rotate_halves(x.data(), cosines.data(), sines.data(), halves.data(), half);
    simd.rotate_pairs(x.data(), cosines.data(), sines.data(), pairs.data(), 2 * half);
    for (size_t i = 0; i < size; ++i) {
      const float partner = i < apart ? -x[i + apart] : x[i - apart];
      ASSERT_EQ(halves[i], x[i] * cosines[i] + partner * sines[i]) << half << ", " << i;
      const float neighbour = i % 2 == 0 ? -x[i + 1] : x[i - 1];
      ASSERT_EQ(pairs[i], x[i] * cosines[i] + neighbour * sines[i]) << half << ", " << i;
    }
    EXPECT_EQ(halves.back(), kUntouched);
    EXPECT_EQ(pairs.back(), kUntouched);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, EverySimdOnRotations, math::EverySimdName());

enum class Form { kSplit, kSlices, kPairs };

TestModel& AddSlice(TestModel& model, const std::string& from, const std::string& to, int64_t start,
                    int64_t end, int64_t step) {
  model.Constant(to + "_start", Tensor::Of<int64_t>(Shape{1}, {start}));
  model.Constant(to + "_end", Tensor::Of<int64_t>(Shape{1}, {end}));
  model.Constant(to + "_axis", Tensor::Of<int64_t>(Shape{1}, {-1}));
  model.Constant(to + "_step", Tensor::Of<int64_t>(Shape{1}, {step}));
  return model.Node("Slice", {from, to + "_start", to + "_end", to + "_axis", to + "_step"}, {to});
}

// "a": x's partners, as exporters of `form` write them. x is [2, heads, sequence, size].
void AddPartners(TestModel& model, Form form, const std::string& x, const Shape& shape) {
  const int64_t size = shape[3];
  constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();
  if (form == Form::kSplit) {
    Attributes attributes = Axis(3);
    attributes.Set("num_outputs", int64_t{2});
    model.Node("Split", {x}, {"first", "second"}, attributes);
  } else {
    const bool pairs = form == Form::kPairs;
    AddSlice(model, x, "first", 0, pairs ? kToTheEnd : size / 2, pairs ? 2 : 1);
    AddSlice(model, x, "second", pairs ? 1 : size / 2, kToTheEnd, pairs ? 2 : 1);
  }
  model.Node("Neg", {"second"}, {"negated"});
  if (form != Form::kPairs) {
    model.Node("Concat", {"negated", "first"}, {"a"}, Axis(-1));
    return;
  }
  model.Constant("last", Tensor::Of<int64_t>(Shape{1}, {-1}));
  model.Constant("shape", Tensor::Of<int64_t>(Shape{4}, std::span<const int64_t>(shape.dims())));
  model.Node("Unsqueeze", {"negated", "last"}, {"n"}).Node("Unsqueeze", {"first", "last"}, {"f"});
  model.Node("Concat", {"n", "f"}, {"joined"}, Axis(-1));
  model.Node("Reshape", {"joined", "shape"}, {"a"});
}

// Of rows [2, sequence, heads, size], turned to [2, heads, sequence, size] before.
TestModel Rotation(Form form, const Shape& shape, const Shape& angles) {
  TestModel model(18);
  model.Input("rows", DataType::kFloat, {2, shape[2], shape[1], shape[3]});
  Attributes order;
  order.Set("perm", std::vector<int64_t>{0, 2, 1, 3});
  model.Node("Transpose", {"rows"}, {"x"}, order);
  model.Constant("cosines", Sines(angles, 0.7f)).Constant("sines", Sines(angles, 0.4f));
  AddPartners(model, form, "x", shape);
  model.Node("Mul", {"x", "cosines"}, {"b"}).Node("Mul", {"a", "sines"}, {"c"});
  return model.Node("Add", {"b", "c"}, {"y"}).Output("y");
}

std::string AfterFusion(TestModel model, bool halves = false) {
  return After(model, {RotaryPositionsFusion(halves), DeadCodeElimination()});
}

TEST(RotaryPositions, AreOneOperatorInEveryForm) {
  for (const Form form : {Form::kSplit, Form::kSlices, Form::kPairs}) {
    for (const Shape& shape : {Shape{2, 3, 5, 6}, Shape{2, 1, 1, 64}, Shape{2, 4, 7, 2}}) {
      for (const bool each_head : {false, true}) {
        const Shape angles = each_head ? shape : Shape{shape[2], shape[3]};
        const TestModel model = Rotation(form, shape, angles);
        EXPECT_EQ(AfterFusion(model), "Transpose RotaryPositions");
        const Tensor rows = Sines(Shape{2, shape[2], shape[1], shape[3]}, 2);
        ExpectSameResults(model, {rows}, 2);
        ExpectSameOnDevice(model, {rows}, true);
      }
    }
  }
}

TEST(RotaryPositions, StretchTheirInputAsASumWould) {
  TestModel model(18);
  model.Input("x", DataType::kFloat, {1, 1, 5, 8}).Input("cosines", DataType::kFloat, {3, 1, 5, 8});
  model.Input("sines", DataType::kFloat, {4, 1, 1});
  AddPartners(model, Form::kSplit, "x", Shape{1, 1, 5, 8});
  model.Constant("ones", Sines(Shape{8}, 1)).Node("Mul", {"sines", "ones"}, {"wide"});
  model.Node("Mul", {"a", "wide"}, {"c"}).Node("Mul", {"cosines", "x"}, {"b"});
  model.Node("Add", {"c", "b"}, {"y"}).Output("y");
  EXPECT_EQ(AfterFusion(model), "Mul RotaryPositions");
  const std::vector<Value> inputs = {Sines(Shape{1, 1, 5, 8}, 1), Sines(Shape{3, 1, 5, 8}, 0.5f),
                                     Sines(Shape{4, 1, 1}, 0.3f)};
  ExpectSameResults(model, inputs);
  ExpectSameOnDevice(model, inputs, true);
}

TEST(RotaryPositions, OfOpenExtentsFollowTheInput) {
  TestModel model(18);
  const Dimension steps = Dimension::Symbol("steps");
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 2, steps, 8});
  model.Input("cosines", DataType::kFloat, {1, 1, steps, 8});
  model.Input("sines", DataType::kFloat, {1, 1, steps, 8});
  AddPartners(model, Form::kSlices, "x", Shape{2, 2, 5, 8});
  model.Node("Mul", {"x", "cosines"}, {"b"}).Node("Mul", {"a", "sines"}, {"c"});
  model.Node("Add", {"b", "c"}, {"y"}).Output("y");
  EXPECT_EQ(AfterFusion(model), "RotaryPositions");
  for (const int64_t count : {1, 6, 0}) {
    const Shape angles{1, 1, count, 8};
    ExpectSameResults(model,
                      {Sines(Shape{3, 2, count, 8}, 1), Sines(angles, 0.5f), Sines(angles, 0.3f)});
  }
}

// The rotation with one node written in another way.
TestModel Otherwise(const std::string& what) {
  TestModel model(18);
  model.Input("x", DataType::kFloat, {2, 3, 5, 8}).Constant("cosines", Sines(Shape{5, 8}, 0.7f));
  model.Constant("sines", Sines(what == "wide" ? Shape{5, 1} : Shape{5, 8}, 0.4f));
  const int64_t middle = what == "uneven" ? 6 : 4;
  AddSlice(model, "x", "first", 0, middle, 1);
  AddSlice(model, "x", "second", middle, 8, 1);
  const bool negated_first = what != "behind";
  model.Node("Neg", {negated_first ? "second" : "first"}, {"n"});
  model.Node("Concat", {negated_first ? "n" : "second", negated_first ? "first" : "n"}, {"a"},
             Axis(-1));
  model.Node("Mul", {what == "other" ? "cosines" : "x", "cosines"}, {"b"});
  model.Node("Mul", {"a", "sines"}, {"c"}).Node("Add", {"b", "c"}, {"y"}).Output("y");
  if (what == "read") model.Output("a");
  return model;
}

TEST(RotaryPositions, AreNotWhatOnlyLooksLikeIt) {
  const std::vector<Value> inputs = {Sines(Shape{2, 3, 5, 8}, 2)};
  EXPECT_EQ(AfterFusion(Otherwise("")), "RotaryPositions");
  for (const std::string what : {"wide", "uneven", "behind", "other", "read"}) {
    EXPECT_THAT(AfterFusion(Otherwise(what)), Not(HasSubstr("RotaryPositions"))) << what;
    ExpectSameResults(Otherwise(what), inputs);
  }
}

TEST(RotaryPositions, NeedPairs) {
  TestModel model(18);
  model.Input("x", DataType::kFloat, {2, 3}).Constant("cosines", Sines(Shape{3}, 1));
  model.Node("RotaryPositions", {"x", "cosines", "cosines"}, {"y"}, {}, "onnxd").Output("y");
  const std::vector<Value> inputs = {Sines(Shape{2, 3}, 1)};
  const auto session = model.Load();
  const Status status = session.ok() ? (*session)->Run(inputs, {}).status() : session.status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("must have an even number of elements"));
}

TEST(RotaryPositions, AreComputedIn16BitsOnADevice) {
  auto device = FindOpenClDevice({});
  if (!device.ok()) GTEST_SKIP() << device.status().ToString();
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    CastModel cast(type);
    const std::string x = cast.Input(Shape{2, 3, 5, 8}), cosines = cast.Input(Shape{5, 8});
    const std::string sines = cast.Input(Shape{5, 8});
    AddPartners(cast.model(), Form::kSlices, x, Shape{2, 3, 5, 8});
    cast.model().Node("Mul", {x, cosines}, {"b"}).Node("Mul", {"a", sines}, {"c"});
    cast.model().Node("Add", {"b", "c"}, {"sum"});
    const std::vector<Value> inputs = cast.inputs();
    const TestModel model = cast.Answer("sum");
    EXPECT_THAT(AfterFusion(model, true), HasSubstr("RotaryPositions"));
    EXPECT_THAT(AfterFusion(model, false), Not(HasSubstr("RotaryPositions")));
    ExpectSameAsCpu(model, inputs, MakeGpuProvider("opencl", *device),
                    type == DataType::kFloat16 ? 2e-3 : 2e-2, OptimizationLevel::kAll);
  }
  const auto nvrtc = cuda::OpenNvrtc();
  int programs = 0;
  for (const std::string& source : (*device)->sources()) {
    if (source.find("KERNEL turn_halves") == std::string::npos) continue;
    ++programs;
    for (const int capability : {80, 90}) {
      if (!nvrtc.ok()) continue;
      const auto cubin =
          cuda::CompileToCubin(**nvrtc, StrCat(Prelude(Dialect::kCuda), source), capability);
      EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
    }
  }
  EXPECT_GE(programs, 2);
}

}  // namespace
}  // namespace onnxd
