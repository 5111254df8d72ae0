// RunOptions::outputs_into: outputs in memory that the caller chose, also in that of an input.
#include <gmock/gmock.h>

#include <numeric>
#include <vector>

#include "runtime/tensor/convert.h"
#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::unique_ptr<InferenceSession> Load(TestModel model, const std::string& states = "") {
  SessionOptions options = DefaultSession();
  options.dropped_tokens.states = states;
  auto session = InferenceSession::FromModel(std::move(model.model()), options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return session.ok() ? *std::move(session) : nullptr;
}

TestModel DoubledAndNegated() {
  TestModel model(17);
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n")});
  model.Node("Add", {"x", "x"}, {"doubled"}).Node("Neg", {"x"}, {"negated"});
  return model.Output("doubled").Output("negated");
}

RunOptions Into(std::vector<Tensor> places) {
  RunOptions options;
  options.outputs_into = std::move(places);
  return options;
}

std::vector<float> Floats(const Value& value) {
  const auto elements = value.tensor().elements<float>();
  return {elements.begin(), elements.end()};
}

TEST(OutputsInto, ThoseThatAreToldAreWrittenThere) {
  const auto session = Load(DoubledAndNegated());
  ASSERT_TRUE(session);
  const Tensor place = *Tensor::Create(DataType::kFloat, Shape{3});
  const std::vector<Value> inputs = {Tensor::Of<float>(Shape{3}, {1, 2, 3})};
  for (const size_t told : {0, 1}) {
    std::vector<Tensor> places(told + 1);
    places[told] = place;
    const auto outputs = session->Run(inputs, Into(places));
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ((*outputs)[told].tensor().raw(), place.raw());
    EXPECT_NE((*outputs)[1 - told].tensor().raw(), place.raw());
    EXPECT_THAT(Floats((*outputs)[0]), ElementsAre(2, 4, 6));
    EXPECT_THAT(Floats((*outputs)[1]), ElementsAre(-1, -2, -3));
  }
}

TEST(OutputsInto, MemoryThatDoesNotFitIsRefusedByName) {
  const auto session = Load(DoubledAndNegated());
  ASSERT_TRUE(session);
  const std::vector<Value> inputs = {Tensor::Of<float>(Shape{3}, {1, 2, 3})};
  for (const Tensor& place :
       {*Tensor::Create(DataType::kFloat, Shape{4}), *Tensor::Create(DataType::kInt32, Shape{3})}) {
    const auto outputs = session->Run(inputs, Into({Tensor(), place}));
    EXPECT_EQ(outputs.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(outputs.status().ToString(),
                HasSubstr("output 'negated' is float[3], to be written to " +
                          Describe(place.type(), place.shape())));
  }
}

// Both read x, so neither may take its place, nor lie within it.
TEST(OutputsInto, AnInputThatOthersReadKeepsItsMemory) {
  const auto session = Load(DoubledAndNegated());
  ASSERT_TRUE(session);
  Tensor memory = Tensor::Of<float>(Shape{5}, {1, 2, 3, 4, 5});
  const auto part = [&](int64_t begin) {
    return Tensor::Wrap(DataType::kFloat, Shape{3}, memory.mutable_data<float>() + begin, nullptr);
  };
  for (const int64_t begin : {0, 1, 2}) {
    const auto outputs = session->Run({{part(0)}}, Into({part(begin)}));
    EXPECT_EQ(outputs.status().code(), StatusCode::kInvalidArgument) << begin;
    EXPECT_THAT(outputs.status().ToString(), HasSubstr("'doubled' is to be written"));
  }
  EXPECT_THAT(memory.elements<float>(), ElementsAre(1, 2, 3, 4, 5));
}

// Those of a body are others.
TEST(OutputsInto, BodiesHaveTheirOwn) {
  const auto body = std::make_shared<Graph>();
  const ValueType type = ValueType::TensorOf(DataType::kFloat, SymbolicShape{3});
  const ValueId x = body->AddValue("x", ValueType::TensorOf(DataType::kInt64, {}));
  const ValueId condition = body->AddValue("condition", ValueType::TensorOf(DataType::kBool, {}));
  const ValueId before = body->AddValue("before", type), after = body->AddValue("after", type);
  const ValueId goes_on = body->AddValue("goes_on", ValueType::TensorOf(DataType::kBool, {}));
  body->inputs = {x, condition, before};
  body->outputs = {goes_on, after};
  for (const auto& [op, from, to] :
       {std::tuple("Identity", condition, goes_on), std::tuple("Exp", before, after)}) {
    Node node;
    node.op_type = op;
    node.since_version = 13;
    node.inputs = {from};
    node.outputs = {to};
    body->nodes.push_back(node);
  }
  TestModel model(17);
  model.Input("times", DataType::kInt64, {}).Input("x", DataType::kFloat, {3});
  Attributes attributes;
  attributes.Set("body", body);
  model.Node("Neg", {"x"}, {"negated"});
  model.Node("Loop", {"times", "", "x"}, {"last"}, attributes);
  const auto session = Load(std::move(model.Output("negated").Output("last")));
  ASSERT_TRUE(session);
  const Tensor place = *Tensor::Create(DataType::kFloat, Shape{3});
  const auto outputs = session->Run(
      {{Tensor::Scalar(int64_t{2}), Tensor::Of<float>(Shape{3}, {0, 0, 0})}}, Into({place}));
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_THAT(place.elements<float>(), ElementsAre(0, 0, 0));
  EXPECT_THAT(Floats((*outputs)[1]), testing::Each(testing::FloatNear(std::exp(1.0f), 1e-4f)));
}

// [batch, heads, past, size], with a token more of each, and their sum, which reads it.
TestModel Appending(bool reads_behind) {
  const Dimension batch = Dimension::Symbol("batch"), past = Dimension::Symbol("past");
  TestModel model(17);
  model.Input("tokens", DataType::kFloat, {batch, 2, Dimension::Symbol("new"), 3});
  model.Input("past_0", DataType::kFloat, {batch, 2, past, 3});
  model.Node("Concat", {"past_0", "tokens"}, {"present_0"}, With({{"axis", int64_t{2}}}));
  model.Node("ReduceSum", {reads_behind ? "past_0" : "present_0"}, {"sum"},
             With({{"keepdims", int64_t{0}}}));
  model.Node("Shape", {"past_0"}, {"shape"});  // which reads no element
  return model.Output("present_0").Output("sum").Output("shape");
}

TEST(OutputsInto, AStateMovesOnByTheTokensThatAreDropped) {
  const auto session = Load(Appending(false), "past");
  ASSERT_TRUE(session);
  constexpr int64_t kRow = 5 * 3, kRows = 4, kSteps = 3;
  std::vector<float> memory(kRows * kRow + kSteps * 3);
  std::iota(memory.begin(), memory.end(), 1.0f);
  Tensor copied = Tensor::Of<float>(Shape{2, 2, 5, 3}, std::span<const float>(memory.data(), 60));
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto at = [&](int64_t token) {
      return Tensor::Wrap(DataType::kFloat, Shape{2, 2, 5, 3}, memory.data() + token * 3, nullptr);
    };
    const Tensor tokens = Numbers(Shape{2, 2, 1, 3}, static_cast<int>(step));
    const Tensor dropped = *Tensor::Create(DataType::kInt64, Shape{1});
    const auto moved = session->Run({{tokens, at(step), dropped}}, Into({at(step + 1)}));
    ASSERT_TRUE(moved.ok()) << moved.status().ToString();
    const auto own = session->Run({{tokens, copied, dropped}}, {});
    ASSERT_TRUE(own.ok()) << own.status().ToString();
    EXPECT_EQ((*moved)[0].tensor().raw(), memory.data() + (step + 1) * 3);
    EXPECT_THAT(Floats((*moved)[0]), ElementsAreArray(Floats((*own)[0])));
    EXPECT_THAT(Floats((*moved)[1]), ElementsAreArray(Floats((*own)[1])));
    copied = (*own)[0].tensor();
  }
}

TEST(OutputsInto, AStateMovesNowhereElse) {
  std::vector<float> memory(4 * 15 + 6);
  const auto at = [&](int64_t token) {
    return Tensor::Wrap(DataType::kFloat, Shape{2, 2, 5, 3}, memory.data() + token * 3, nullptr);
  };
  const Tensor tokens = Numbers(Shape{2, 2, 1, 3});
  const auto run = [&](const InferenceSession& session, int64_t dropped, int64_t to) {
    return session
        .Run({{tokens, at(0), *Tensor::Create(DataType::kInt64, Shape{dropped})}}, Into({at(to)}))
        .status();
  };
  const auto session = Load(Appending(false), "past"), read_behind = Load(Appending(true), "past");
  ASSERT_TRUE(session && read_behind);
  EXPECT_EQ(run(*session, 1, 0).code(), StatusCode::kInvalidArgument) << "where it is";
  EXPECT_EQ(run(*session, 1, 2).code(), StatusCode::kInvalidArgument) << "two tokens on";
  EXPECT_TRUE(run(*session, 1, 1).ok());
}

// What reads the state itself may run behind what writes it.
TEST(OutputsInto, AStateThatIsReadBehindItDoesNotMove) {
  TestModel model(24);
  const Dimension past = Dimension::Symbol("past");
  model.Input("past_0", DataType::kFloat, {1, past, 1});
  model.Input("write_indices", DataType::kInt64, {1}).Input("update", DataType::kFloat, {1, 1, 1});
  model.Node("TensorScatter", {"past_0", "update", "write_indices"}, {"present_0"},
             With({{"axis", int64_t{1}}}));
  TestModel read = model;
  read.Node("Mul", {"present_0", "past_0"}, {"product"}).Output("present_0").Output("product");
  const auto reads = Load(std::move(read));
  const auto alone = Load(std::move(model.Output("present_0")));
  ASSERT_TRUE(reads && alone);
  Tensor cache = Tensor::Of<float>(Shape{1, 3, 1}, {1, 2, 3});
  const std::vector<Value> inputs = {cache, Tensor::Of<int64_t>(Shape{1}, {1}),
                                     Tensor::Of<float>(Shape{1, 1, 1}, {9})};
  EXPECT_EQ(reads->Run(inputs, Into({cache})).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(cache.elements<float>(), ElementsAre(1, 2, 3));
  const auto outputs = alone->Run(inputs, Into({cache}));
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_THAT(cache.elements<float>(), ElementsAre(1, 9, 3));
}

// A step of two sequences, 2 and 5 tokens long, in caches with room for 8.
TEST(OutputsInto, CachesOfGroupQueryAttentionStay) {
  TestModel model(17);
  const Dimension room = Dimension::Symbol("room");
  for (const char* name : {"query", "key", "value"}) {
    model.Input(name, DataType::kFloat, {2, 1, name[0] == 'q' ? 16 : 8});
  }
  for (const char* name : {"past_key", "past_value"}) {
    model.Input(name, DataType::kFloat, {2, 2, room, 4});
  }
  model.Input("lengths", DataType::kInt32, {2});
  model.Constant("total", Tensor::Of<int32_t>(Shape{1}, {8}));
  model.Node("GroupQueryAttention",
             {"query", "key", "value", "past_key", "past_value", "lengths", "total"},
             {"y", "present_key", "present_value"},
             With({{"num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}}), "com.microsoft");
  model.Output("y").Output("present_key").Output("present_value");
  const auto session = Load(std::move(model));
  ASSERT_TRUE(session);
  Tensor keys = Random(Shape{2, 2, 8, 4}, 1), values = Random(Shape{2, 2, 8, 4}, 2);
  const std::vector<Value> inputs = {Random(Shape{2, 1, 16}, 3),
                                     Random(Shape{2, 1, 8}, 4),
                                     Random(Shape{2, 1, 8}, 5),
                                     keys,
                                     values,
                                     Tensor::Of<int32_t>(Shape{2}, {2, 5})};
  const auto own = session->Run(inputs, {});
  ASSERT_TRUE(own.ok()) << own.status().ToString();
  ASSERT_NE((*own)[1].tensor().raw(), keys.raw());
  const auto stayed = session->Run(inputs, Into({Tensor(), keys, values}));
  ASSERT_TRUE(stayed.ok()) << stayed.status().ToString();
  EXPECT_EQ((*stayed)[1].tensor().raw(), keys.raw());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(Floats((*stayed)[i]), ElementsAreArray(Floats((*own)[i]))) << i;
  }
}

}  // namespace
}  // namespace onnxd
