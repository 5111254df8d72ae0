// Which nodes run on a device, the copies between, and runs that cross.
#include "runtime/session/device_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "runtime/base/str_cat.h"
#include "runtime/session/model_preparation.h"
#include "tests/support/fake_device.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

float Negated(float x) { return -x; }
float Doubled(float x) { return 2 * x; }

class DevicePartitionTest : public testing::Test {
 protected:
  // Neg is light and Softmax, which doubles here, is heavy.
  std::shared_ptr<const FakeDeviceProvider> device_ = std::make_shared<FakeDeviceProvider>(
      std::map<std::string, FakeDeviceProvider::Function>{{"Neg", Negated}, {"Softmax", Doubled}});

  SessionOptions Options(OptimizationLevel level = OptimizationLevel::kDisable) const {
    SessionOptions options = DefaultSession(level);
    options.providers.insert(options.providers.begin(), device_);
    return options;
  }

  // "op:provider" of each node, copies included.
  std::vector<std::string> Placed(const TestModel& model) const {
    Model copy = TestModel(model).model();
    EXPECT_TRUE(CheckModel(copy).ok());
    const Status prepared = PrepareModel(copy, Options(), Stage::kFinal);
    EXPECT_TRUE(prepared.ok()) << prepared.ToString();
    std::vector<std::string> placed;
    for (const Node& node : copy.graph.nodes) {
      placed.push_back(StrCat(node.op_type, ":", node.provider));
    }
    return placed;
  }

  std::vector<float> Run(const TestModel& model, std::initializer_list<float> x,
                         const RunOptions& options = {}) const {
    auto session = InferenceSession::FromModel(TestModel(model).model(), Options());
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    const std::vector<Value> inputs = {Floats(Shape{static_cast<int64_t>(x.size())}, x)};
    std::vector<float> first;
    // The second run uses the first one's context.
    for (int run = 0; run < 2; ++run) {
      const auto outputs = (*session)->Run(inputs, options);
      EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
      if (!outputs.ok()) return {};
      EXPECT_EQ((*outputs)[0].tensor().device(), nullptr);
      const auto elements = (*outputs)[0].tensor().elements<float>();
      const std::vector<float> got(elements.begin(), elements.end());
      if (run == 0) first = got;
      EXPECT_EQ(got, first);
    }
    return first;
  }
};

TestModel Chain(const std::vector<std::string>& ops) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3});
  std::string last = "x";
  for (size_t i = 0; i < ops.size(); ++i) {
    const std::string next = i + 1 == ops.size() ? "y" : StrCat("v", i);
    model.Node(ops[i], {last}, {next});
    last = next;
  }
  model.Output("y");
  return model;
}

TEST_F(DevicePartitionTest, InputsAndOutputsAreCopiedOnce) {
  EXPECT_THAT(Placed(Chain({"Neg", "Softmax", "Neg"})),
              ElementsAre("CopyToDevice:session", "Neg:fake", "Softmax:fake", "Neg:fake",
                          "CopyToHost:session"));
  EXPECT_THAT(Run(Chain({"Neg", "Softmax", "Neg"}), {1, 2, 3}), ElementsAre(2, 4, 6));
}

TEST_F(DevicePartitionTest, ALightNodeBetweenTwoOfTheHostStaysThere) {
  EXPECT_THAT(Placed(Chain({"Abs", "Neg", "Abs"})), ElementsAre("Abs:cpu", "Neg:cpu", "Abs:cpu"));
}

TEST_F(DevicePartitionTest, AHeavyNodeBetweenTwoOfTheHostIsWorthTheCopies) {
  EXPECT_THAT(Placed(Chain({"Abs", "Softmax", "Abs"})),
              ElementsAre("Abs:cpu", "CopyToDevice:session", "Softmax:fake", "CopyToHost:session",
                          "Abs:cpu"));
  EXPECT_THAT(Run(Chain({"Abs", "Softmax", "Abs"}), {-1, 2, -3}), ElementsAre(2, 4, 6));
}

TEST_F(DevicePartitionTest, LightNodesGoWhereFewerValuesCross) {
  // v is read twice on the host: computed there, only x2 crosses.
  TestModel model;
  model.Input("x", DataType::kFloat, {3});
  model.Node("Softmax", {"x"}, {"s"}).Node("Neg", {"s"}, {"n"});
  model.Node("Abs", {"n"}, {"a"}).Node("Abs", {"s"}, {"b"}).Node("Add", {"a", "b"}, {"y"});
  model.Output("y");
  EXPECT_THAT(Placed(model),
              ElementsAre("CopyToDevice:session", "Softmax:fake", "CopyToHost:session", "Neg:cpu",
                          "Abs:cpu", "Abs:cpu", "Add:cpu"));
  EXPECT_THAT(Run(model, {1, -2, 3}), ElementsAre(4, 8, 12));
}

TEST_F(DevicePartitionTest, ShapesAreReadWithoutACopyAndComputedOnTheHost) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3});
  model.Node("Softmax", {"x"}, {"s"}).Node("Shape", {"s"}, {"n"});
  model.Node("Cast", {"n"}, {"f"}, [] {
    Attributes attributes;
    attributes.Set("to", int64_t{1});
    return attributes;
  }());
  model.Node("Neg", {"f"}, {"y"});
  model.Output("y");
  EXPECT_THAT(Placed(model), ElementsAre("CopyToDevice:session", "Softmax:fake", "Shape:cpu",
                                         "Cast:cpu", "Neg:cpu"));
  EXPECT_THAT(Run(model, {1, 2, 3}), ElementsAre(-3));
}

TEST_F(DevicePartitionTest, ConstantsAreBroughtToTheDeviceWhenTheModelLoads) {
  TestModel model;
  model.Constant("c", Floats(Shape{3}, {1, 2, 3}));
  model.Input("x", DataType::kFloat, {3});
  model.Node("Softmax", {"c"}, {"s"}).Node("Add", {"s", "x"}, {"y"});
  model.Output("y");
  EXPECT_THAT(Run(model, {1, 1, 1}), ElementsAre(3, 5, 7));
  EXPECT_EQ(device_->fake().copies_in, 1);  // at load, and not in the two runs
}

TEST_F(DevicePartitionTest, AResultOnTheWayToTheHostIsWaitedForEvenBehindAView) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3});
  model.Constant("shape", Ints(Shape{1}, {3}));
  model.Node("Softmax", {"x"}, {"s"}).Node("Reshape", {"s", "shape"}, {"r"});
  model.Node("Abs", {"r"}, {"a"}).Node("Add", {"a", "r"}, {"y"});
  model.Output("y");
  EXPECT_THAT(Run(model, {1, -2, 3}), ElementsAre(4, 0, 12));
}

TEST_F(DevicePartitionTest, ShapesThatTheDataDecideCross) {
  // NonZero's rows are known only when it ran; what follows runs unplanned on the device.
  TestModel model;
  model.Input("x", DataType::kFloat, {3});
  model.Node("NonZero", {"x"}, {"i"});
  model.Node("Cast", {"i"}, {"f"}, [] {
    Attributes attributes;
    attributes.Set("to", int64_t{1});
    return attributes;
  }());
  model.Node("Softmax", {"f"}, {"s"}).Node("Abs", {"s"}, {"y"});
  model.Output("y");
  EXPECT_THAT(Run(model, {0, 5, 6}), ElementsAre(2, 4));
}

TEST_F(DevicePartitionTest, BodiesOfControlFlowRunOnTheDeviceOnlyForHeavyNodes) {
  for (const bool heavy : {false, true}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {3});
    model.Constant("yes", Tensor::Scalar(true));
    const auto branch = [&](const std::string& op) {
      auto body = std::make_shared<Graph>();
      const ValueId in = body->AddValue("x", ValueType::TensorOf(DataType::kFloat));
      const ValueId out = body->AddValue("o", ValueType::TensorOf(DataType::kFloat));
      Node node;
      node.op_type = op;
      node.since_version = 13;
      node.inputs = {in};
      node.outputs = {out};
      body->captures = {in};
      body->nodes.push_back(std::move(node));
      body->outputs = {out};
      return body;
    };
    Attributes attributes;
    attributes.Set("then_branch", branch(heavy ? "Softmax" : "Neg"));
    attributes.Set("else_branch", branch("Abs"));
    model.Node("If", {"yes"}, {"y"}, attributes);
    model.Output("y");
    model.graph().nodes.back().captures = {model.graph().FindValue("x")};
    // What is told of the graph's outputs says nothing of a body's.
    RunOptions stays;
    stays.outputs_on_device = {true};
    EXPECT_THAT(Run(model, {1, 2, 3}, stays),
                heavy ? ElementsAre(2, 4, 6) : ElementsAre(-1, -2, -3));
    EXPECT_EQ(device_->fake().copies_in > 0, heavy);
  }
}

TEST_F(DevicePartitionTest, WhatAKernelFindsInTheDataIsTheRunsFailure) {
  const auto refuses =
      std::make_shared<FakeDeviceProvider>(std::map<std::string, FakeDeviceProvider::Function>{
          {"Softmax", [](float x) { return x < 0 ? -0.0f : x; }}});
  SessionOptions options = DefaultSession(OptimizationLevel::kDisable);
  options.providers.insert(options.providers.begin(), refuses);
  auto session = InferenceSession::FromModel(Chain({"Abs", "Neg", "Softmax"}).model(), options);
  ASSERT_TRUE(session.ok());
  const auto bad = (*session)->Run(std::vector<Value>{Floats(Shape{3}, {0.5f, 2, 3})}, {});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(bad.status().message(), HasSubstr("element 0 is refused"));
}

TEST_F(DevicePartitionTest, WhatTheSecondRunRecordsLaterOnesReplay) {
  auto session = InferenceSession::FromModel(Chain({"Neg", "Softmax", "Neg"}).model(), Options());
  ASSERT_TRUE(session.ok());
  FakeDevice& device = device_->fake();
  for (int run = 1; run <= 5; ++run) {
    const auto x = static_cast<float>(run);
    const auto outputs = (*session)->Run(std::vector<Value>{Floats(Shape{3}, {x, x, x})}, {});
    ASSERT_TRUE(outputs.ok());
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[1], 2 * x);
    EXPECT_EQ(device.recorded, run > 1 ? 1 : 0);
    EXPECT_EQ(device.replays, run - 1);
  }
}

TEST_F(DevicePartitionTest, AFailureOfAReplayNamesItsNode) {
  auto session = InferenceSession::FromModel(Chain({"Softmax", "Softmax"}).model(), Options());
  ASSERT_TRUE(session.ok());
  for (int run = 1; run <= 4; ++run) {
    const auto good = (*session)->Run(std::vector<Value>{Floats(Shape{3}, {1, 2, 3})}, {});
    EXPECT_TRUE(good.ok());
    const auto bad = (*session)->Run(std::vector<Value>{Floats(Shape{3}, {1, 2, -0.0f})}, {});
    ASSERT_FALSE(bad.ok());
    EXPECT_THAT(bad.status().message(), HasSubstr("element 2 is refused"));
  }
  EXPECT_GT(device_->fake().replays, 0);
}

TEST_F(DevicePartitionTest, ADeviceWithoutMemoryIsAnErrorThatSaysSo) {
  device_->fake().most_bytes = 64;
  auto session = InferenceSession::FromModel(Chain({"Softmax", "Neg"}).model(), Options());
  ASSERT_TRUE(session.ok());
  device_->fake().most_bytes = 0;
  const auto outputs = (*session)->Run(std::vector<Value>{Floats(Shape{3}, {1, 2, 3})}, {});
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(outputs.status().message(), HasSubstr("fake:0 has no"));
}

TEST_F(DevicePartitionTest, OtherShapesGiveBackWhatTheyKeepWhereTheDeviceHasNoMore) {
  TestModel model;
  model.Input("x", DataType::kFloat, {-1}).Node("Softmax", {"x"}, {"s"});
  model.Node("Neg", {"s"}, {"y"}).Output("y");
  auto session = InferenceSession::FromModel(std::move(model.model()), Options());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  device_->fake().most_in_all = 10'000;  // 2,000 numbers, not 1,000 of another shape as well
  for (const int64_t count : {1000, 2000, 1000, 2000}) {
    Tensor x = *Tensor::Create(DataType::kFloat, Shape{count});
    std::fill_n(x.mutable_data<float>(), count, 3.0f);
    const auto outputs = (*session)->Run(std::vector<Value>{x}, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[count - 1], -6.0f);
  }
  const auto refused =
      (*session)->Run(std::vector<Value>{*Tensor::Create(DataType::kFloat, Shape{3000})}, {});
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
}

TEST_F(DevicePartitionTest, InputsAreMadeWhereTheDeviceCopiesFromWhileThereIsRoom) {
  const Shape shape{2, 3};
  TestModel of_host;
  of_host.Input("x", DataType::kFloat, {2, 3}).Node("Exp", {"x"}, {"y"}).Output("y");
  const auto host = InferenceSession::FromModel(std::move(of_host.model()), Options());
  ASSERT_TRUE(host.ok());
  EXPECT_TRUE((*host)->MakeInput(DataType::kFloat, shape).ok());
  EXPECT_EQ(device_->fake().pinned, 0);
  EXPECT_FALSE((*host)->runs_on_device());

  TestModel model;
  model.Input("x", DataType::kFloat, {2, 3}).Node("Softmax", {"x"}, {"y"}).Output("y");
  const auto session = InferenceSession::FromModel(std::move(model.model()), Options());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  EXPECT_TRUE((*session)->runs_on_device());
  for (const int64_t most : {-1, 0}) {
    auto input = (*session)->MakeInput(DataType::kFloat, shape);
    ASSERT_TRUE(input.ok());
    std::fill_n(input->mutable_data<float>(), 6, 1.5f);
    const auto outputs = (*session)->Run(std::vector<Value>{*input}, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[5], 3.0f);
    EXPECT_EQ(device_->fake().pinned, most < 0 ? 2 : 4) << "asked each time, as for the output";
    device_->fake().most_bytes = 0;
  }
  device_->fake().most_bytes = -1;
  const Shape too_large{int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_FALSE((*session)->MakeInput(DataType::kFloat, too_large).ok());
}

// What one run leaves on the device is the next one's input, and nothing is copied in between.
TEST_F(DevicePartitionTest, ValuesThatStayOnTheDeviceAreNotCopied) {
  const auto session =
      InferenceSession::FromModel(Chain({"Neg", "Softmax", "Neg"}).model(), Options());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  RunOptions stays;
  stays.outputs_on_device = {true};
  auto moved = (*session)->MoveInput(Value(Floats(Shape{3}, {1, 2, 3})));
  ASSERT_TRUE(moved.ok());
  ASSERT_EQ(moved->tensor().device(), device_->device());
  FakeDevice& device = device_->fake();
  const int before = device.copies_in + device.copies_out;
  std::vector<Value> values = {*moved};
  for (int run = 1; run <= 8; ++run) {
    auto outputs = (*session)->Run(values, stays);
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    ASSERT_EQ((*outputs)[0].tensor().device(), device_->device());
    values = *std::move(outputs);
  }
  EXPECT_EQ(device.copies_in + device.copies_out, before);
  // The same model with its input on one side and its output on the other: the sides are part of
  // what a plan is for.
  const auto to_host = (*session)->Run(values, {});
  ASSERT_TRUE(to_host.ok()) << to_host.status().ToString();
  EXPECT_EQ((*to_host)[0].tensor().device(), nullptr);
  EXPECT_EQ((*to_host)[0].tensor().data<float>()[1], 2.0f * 512);
  const auto from_host = (*session)->Run(std::vector<Value>{Floats(Shape{3}, {1, 2, 3})}, stays);
  ASSERT_TRUE(from_host.ok()) << from_host.status().ToString();
  EXPECT_EQ((*from_host)[0].tensor().device(), device_->device());
}

TEST_F(DevicePartitionTest, OutputsThatAreNotToldComeToTheHost) {
  TestModel model = Chain({"Neg", "Softmax"});
  model.Node("Softmax", {"y"}, {"z"}).Output("z");
  const auto session = InferenceSession::FromModel(std::move(model.model()), Options());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<Value> inputs = {Floats(Shape{3}, {1, 2, 3})};
  RunOptions told;
  for (const auto& stay : {std::vector<bool>{false, true}, {}, {false, true}, {false}}) {
    told.outputs_on_device = stay;
    const auto outputs = (*session)->Run(inputs, told);
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ((*outputs)[0].tensor().device(), nullptr);
    EXPECT_EQ((*outputs)[0].tensor().data<float>()[1], -4.0f);
    EXPECT_EQ((*outputs)[1].tensor().device(), stay.size() == 2 ? device_->device() : nullptr);
  }
}

// An output that the graph names twice is one tensor there.
TEST_F(DevicePartitionTest, AnOutputThatIsThereTwiceIsNotCopiedByTheHost) {
  TestModel model = Chain({"Neg", "Softmax"});
  model.Output("y");
  const auto session = InferenceSession::FromModel(std::move(model.model()), Options());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  RunOptions stays;
  stays.outputs_on_device = {true};
  const auto outputs = (*session)->Run(std::vector<Value>{Floats(Shape{3}, {1, 2, 3})}, stays);
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ((*outputs)[0].tensor().device(), device_->device());
  EXPECT_EQ((*outputs)[1].tensor().raw(), (*outputs)[0].tensor().raw());
}

// A replay is of the addresses it was recorded with.
TEST_F(DevicePartitionTest, OtherAddressesOnTheDeviceAreRecordedAnew) {
  const auto session =
      InferenceSession::FromModel(Chain({"Neg", "Softmax", "Neg"}).model(), Options());
  ASSERT_TRUE(session.ok());
  std::vector<Value> inputs;
  for (const float x : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}) {
    inputs.push_back(*(*session)->MoveInput(Value(Floats(Shape{3}, {x, x, x}))));
  }
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto outputs = (*session)->Run(std::span(&inputs[i], 1), {});
      ASSERT_TRUE(outputs.ok());
      EXPECT_EQ((*outputs)[0].tensor().data<float>()[1], 2 * static_cast<float>(i + 1));
    }
  }
  EXPECT_GT(device_->fake().recorded, 6);
  const int replays = device_->fake().replays;
  ASSERT_TRUE((*session)->Run(std::span(&inputs.back(), 1), {}).ok());
  EXPECT_EQ(device_->fake().replays, replays + 1);
}

TEST_F(DevicePartitionTest, AnInputOnTheDeviceIsNotReadOnTheHost) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3}).Node("Softmax", {"x"}, {"y"}).Output("y");
  model.Node("Exp", {"x"}, {"z"}).Output("z");
  const auto session = InferenceSession::FromModel(std::move(model.model()), Options());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const auto moved = (*session)->MoveInput(Value(Floats(Shape{3}, {1, 2, 3})));
  ASSERT_TRUE(moved.ok());
  const auto refused = (*session)->Run(std::vector<Value>{*moved}, {});
  ASSERT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("input 'x' is on fake:0"));
}

TEST_F(DevicePartitionTest, RunsAtOnceHaveStreamsAndMemoryOfTheirOwn) {
  auto session =
      InferenceSession::FromModel(Chain({"Neg", "Softmax", "Abs", "Softmax"}).model(), Options());
  ASSERT_TRUE(session.ok());
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      const auto x = static_cast<float>(t);
      for (int i = 0; i < 200; ++i) {
        const auto outputs = (*session)->Run(std::vector<Value>{Floats(Shape{3}, {x, x, x})}, {});
        ASSERT_TRUE(outputs.ok());
        ASSERT_EQ((*outputs)[0].tensor().data<float>()[2], 4 * x);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(DevicePartitionTest, PeopleAreToldWhyANodeIsWhereItIs) {
  Model model = Chain({"Abs", "Neg", "Abs", "Softmax"}).model();
  ASSERT_TRUE(CheckModel(model).ok());
  const SessionOptions options = Options();
  ASSERT_TRUE(PrepareModel(model, options, Stage::kFinal).ok());
  const auto placements = ExplainPartition(model.graph, options.providers);
  EXPECT_THAT(placements[0].reason, HasSubstr("fake: no Abs here"));
  EXPECT_THAT(placements[1].reason, HasSubstr("fake: fewer values cross this way"));
  EXPECT_EQ(placements[4].provider, "fake");
  EXPECT_EQ(placements[4].reason, "");
}

}  // namespace
}  // namespace onnxd
