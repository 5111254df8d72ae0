#include "server/generation/decoder_rows.h"

#include <gmock/gmock.h>

#include <numeric>

#include "runtime/tensor/device_tensor.h"
#include "tests/support/fake_device.h"

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

TensorSignature Signature(const std::string& name, DataType type, SymbolicShape shape) {
  TensorSignature signature;
  signature.name = name;
  signature.type.kind = ValueType::Kind::kTensor;
  signature.type.element = type;
  signature.type.shape = std::move(shape);
  return signature;
}

Dimension Free(const char* name) { return Dimension::Symbol(name); }

// One cache [batch, 2, past, 1] and one state of a fixed size, [batch, 2].
std::vector<TensorSignature> Inputs() {
  return {Signature("input_ids", DataType::kInt64, {Free("batch"), Free("tokens")}),
          Signature("attention_mask", DataType::kInt32, {Free("batch"), Free("all")}),
          Signature("position_ids", DataType::kInt64, {Free("batch"), Free("tokens")}),
          Signature("past_key_values.0.key", DataType::kFloat, {Free("batch"), 2, Free("past"), 1}),
          Signature("past_conv.1", DataType::kFloat, {Free("batch"), 2})};
}

std::vector<TensorSignature> Outputs() {
  return {Signature("logits", DataType::kFloat, {Free("batch"), Free("tokens"), 5}),
          Signature("present.0.key", DataType::kFloat, {Free("batch"), 2, Free("all"), 1}),
          Signature("present_conv.1", DataType::kFloat, {Free("batch"), 2})};
}

DecoderPlan Plan(DecoderPlan::Joining joining) {
  DecoderPlan plan = *MakeDecoderPlan(Inputs(), Outputs());
  plan.joining = joining;
  return plan;
}

// Of one sequence: numbers from `first` on.
DecoderState State(int64_t length, float first) {
  std::vector<float> cache(static_cast<size_t>(2 * length));
  std::iota(cache.begin(), cache.end(), first);
  return {{Tensor::Of<float>(Shape{1, 2, length, 1}, cache),
           Tensor::Of<float>(Shape{1, 2}, {first, -first})},
          length};
}

std::vector<float> Floats(const Value& value) {
  const auto elements = value.tensor().elements<float>();
  return {elements.begin(), elements.end()};
}

TEST(DecoderPlan, FindsWhatIsWhat) {
  const DecoderPlan plan = Plan(DecoderPlan::Joining::kAlone);
  ASSERT_EQ(plan.states.size(), 2U);
  EXPECT_EQ(plan.states[0].output, 1U);
  EXPECT_EQ(plan.states[0].past_axis, 2);
  EXPECT_EQ(plan.states[1].output, 2U);
  EXPECT_EQ(plan.states[1].past_axis, -1);
  EXPECT_TRUE(plan.has_mask());
}

TEST(DecoderPlan, FindsTheBatchBehindKeysAndValues) {
  auto inputs = Inputs();
  inputs[3] = Signature("past_0", DataType::kFloat, {2, Free("batch"), 4, Free("past"), 8});
  auto outputs = Outputs();
  outputs[1].name = "present_0";
  const auto plan = MakeDecoderPlan(inputs, outputs);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->states[0].batch_axis, 1);
  EXPECT_EQ(plan->states[0].past_axis, 3);
}

TEST(DecoderPlan, NamesWhatItDoesNotKnow) {
  const auto refusal = [](std::vector<TensorSignature> inputs,
                          std::vector<TensorSignature> outputs) {
    return std::string(MakeDecoderPlan(inputs, outputs).status().message());
  };
  auto inputs = Inputs();
  inputs[0].name = "tokens";
  EXPECT_THAT(refusal(inputs, Outputs()), HasSubstr("no inputs 'input_ids'"));
  inputs = Inputs();
  inputs[2].name = "encoder_hidden_states";
  EXPECT_THAT(refusal(inputs, Outputs()), HasSubstr("'encoder_hidden_states'"));
  inputs = Inputs();
  inputs[3].type.shape = SymbolicShape{Free("batch"), Free("heads"), Free("past"), 1};
  EXPECT_THAT(refusal(inputs, Outputs()), HasSubstr("'past_key_values.0.key' has free dimensions"));
  auto outputs = Outputs();
  outputs[1].name = "other";
  EXPECT_THAT(refusal(Inputs(), outputs), HasSubstr("no output 'present_key_values.0.key'"));
  outputs = Outputs();
  outputs[0].name = "other";
  EXPECT_THAT(refusal(Inputs(), outputs), HasSubstr("no output 'logits'"));
}

TEST(DecoderRows, PutsTheShorterOnesBehindTheirPadding) {
  const DecoderPlan plan = Plan(DecoderPlan::Joining::kPaddedBefore);
  DecoderRows rows(plan, {Tensor::Create});
  const std::vector<DecoderState> joining = {State(1, 10), State(3, 20)};
  ASSERT_TRUE(rows.Change({}, joining).ok());
  const auto inputs = rows.StepInputs(std::vector<int64_t>{7, 8});
  ASSERT_TRUE(inputs.ok());
  EXPECT_THAT((*inputs)[0].tensor().elements<int64_t>(), ElementsAre(7, 8));
  EXPECT_THAT((*inputs)[1].tensor().elements<int32_t>(), ElementsAre(0, 0, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT((*inputs)[2].tensor().elements<int64_t>(), ElementsAre(1, 3));
  EXPECT_THAT(Floats((*inputs)[3]), ElementsAre(0, 0, 10, 0, 0, 11, 20, 21, 22, 23, 24, 25));
  EXPECT_THAT(Floats((*inputs)[4]), ElementsAre(10, -10, 20, -20));
}

TEST(DecoderRows, PutsTheShorterOnesBeforeTheirPadding) {
  const DecoderPlan plan = Plan(DecoderPlan::Joining::kPaddedBehind);
  DecoderRows rows(plan, {Tensor::Create});
  const std::vector<DecoderState> joining = {State(1, 10), State(3, 20)};
  ASSERT_TRUE(rows.Change({}, joining).ok());
  const auto inputs = rows.StepInputs(std::vector<int64_t>{7, 8});
  ASSERT_TRUE(inputs.ok());
  EXPECT_THAT((*inputs)[1].tensor().elements<int32_t>(), ElementsAre(1, 1, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(Floats((*inputs)[3]), ElementsAre(10, 0, 0, 11, 0, 0, 20, 21, 22, 23, 24, 25));
}

TEST(DecoderRows, CutsPaddingWhenTheLongestGoes) {
  for (const auto joining :
       {DecoderPlan::Joining::kPaddedBefore, DecoderPlan::Joining::kPaddedBehind}) {
    const DecoderPlan plan = Plan(joining);
    DecoderRows rows(plan, {Tensor::Create});
    const std::vector<DecoderState> states = {State(1, 10), State(3, 20), State(2, 30)};
    ASSERT_TRUE(rows.Change({}, states).ok());
    const std::vector<DecoderState> more = {State(1, 40)};
    ASSERT_TRUE(rows.Change(std::vector<size_t>{2, 0}, more).ok());
    EXPECT_THAT(rows.lengths(), ElementsAre(2, 1, 1));
    const auto inputs = rows.StepInputs(std::vector<int64_t>{1, 2, 3});
    ASSERT_TRUE(inputs.ok());
    const bool before = joining == DecoderPlan::Joining::kPaddedBefore;
    const std::vector<float> expected =
        before ? std::vector<float>{30, 31, 32, 33, 0, 10, 0, 11, 0, 40, 0, 41}
               : std::vector<float>{30, 31, 32, 33, 10, 0, 11, 0, 40, 0, 41, 0};
    EXPECT_THAT(Floats((*inputs)[3]), ElementsAreArray(expected));
    EXPECT_THAT(Floats((*inputs)[4]), ElementsAre(30, -30, 10, -10, 40, -40));
  }
}

TEST(DecoderRows, RefusesStatesOfAnotherShape) {
  const DecoderPlan plan = Plan(DecoderPlan::Joining::kPaddedBefore);
  DecoderRows rows(plan, {Tensor::Create});
  const std::vector<DecoderState> joining = {State(2, 10)};
  ASSERT_TRUE(rows.Change({}, joining).ok());
  const Value logits(Tensor::Of<float>(Shape{1, 1, 5}, {1, 2, 3, 4, 5}));
  const auto after = [&](int64_t length) {
    DecoderState state = State(length, 1);
    return std::vector<Value>{logits, state.tensors[0], state.tensors[1]};
  };
  const Status status = rows.SetStates(after(2));
  EXPECT_THAT(status.message(), HasSubstr("'past_key_values.0.key' became float[1, 2, 2, 1]"));
  EXPECT_THAT(rows.lengths(), ElementsAre(2));
  EXPECT_TRUE(rows.SetStates(after(3)).ok());
  EXPECT_THAT(rows.lengths(), ElementsAre(3));
}

TEST(DecoderRows, MakesTheInputsOfAPromptsPieces) {
  const DecoderPlan plan = Plan(DecoderPlan::Joining::kPaddedBefore);
  const auto empty = EmptyState(plan);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->tensors[0].shape(), (Shape{1, 2, 0, 1}));
  EXPECT_THAT(Floats(Value(empty->tensors[1])), ElementsAre(0, 0));
  const auto inputs = PromptInputs(plan, State(2, 1), std::vector<int64_t>{5, 6, 7});
  ASSERT_TRUE(inputs.ok());
  EXPECT_THAT((*inputs)[1].tensor().elements<int32_t>(), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT((*inputs)[2].tensor().elements<int64_t>(), ElementsAre(2, 3, 4));
}

// The mask of the one row, and how many tokens are dropped.
std::pair<std::vector<int32_t>, int64_t> MaskAndDropped(const std::vector<Value>& inputs) {
  const auto mask = inputs[1].tensor().elements<int32_t>();
  return {{mask.begin(), mask.end()}, inputs.back().tensor().shape()[0]};
}

std::vector<Value> OutputsOfSize(int64_t tokens) {
  const Value logits(Tensor::Of<float>(Shape{1, 1, 5}, {1, 2, 3, 4, 5}));
  DecoderState state = State(tokens, 1);
  return {logits, state.tensors[0], state.tensors[1]};
}

TEST(DecoderRows, StatesKeepTheirSizeWhileTheyHaveRoom) {
  for (const auto joining :
       {DecoderPlan::Joining::kPaddedBefore, DecoderPlan::Joining::kPaddedBehind}) {
    const bool is_before = joining == DecoderPlan::Joining::kPaddedBefore;
    DecoderPlan plan = Plan(joining);
    plan.inputs.push_back({DecoderPlan::Role::kDropped, DataType::kInt64});
    plan.keeps_size = true;
    DecoderRows rows(plan, {Tensor::Create});
    const std::vector<DecoderState> one = {State(62, 1)};
    ASSERT_TRUE(rows.Change({}, one).ok());
    const std::vector<int64_t> token = {9};
    for (int64_t length = 62; length < 64; ++length) {
      const auto inputs = rows.StepInputs(token);
      ASSERT_TRUE(inputs.ok());
      EXPECT_EQ((*inputs)[3].tensor().shape(), (Shape{1, 2, 64, 1}));
      const auto [mask, dropped] = MaskAndDropped(*inputs);
      ASSERT_EQ(mask.size(), 64u);
      EXPECT_EQ(std::accumulate(mask.begin(), mask.end(), int64_t{0}), length + 1);
      EXPECT_EQ(mask[is_before ? 63 : 0], 1);
      EXPECT_EQ(dropped, is_before ? 1 : 0);
      EXPECT_EQ(rows.SetStates(OutputsOfSize(65)).code(), StatusCode::kInternal);
      ASSERT_TRUE(rows.SetStates(OutputsOfSize(64)).ok());
    }
    const auto larger = rows.StepInputs(token);
    ASSERT_TRUE(larger.ok());
    EXPECT_EQ((*larger)[3].tensor().shape(), (Shape{1, 2, 128, 1}));
    const auto numbers = Floats((*larger)[3]);
    EXPECT_EQ(numbers[is_before ? 64 : 0], 1) << "the first token that was";
    EXPECT_EQ(numbers[is_before ? 63 : 64], 0) << "and none beside";
  }
}

// What a run leaves that writes its tokens where it is told: 100 more each.
std::vector<Value> Step(const DecoderRows& rows, bool is_before, std::vector<Tensor> places) {
  Tensor cache = places[1];
  const int64_t room = cache.shape()[2];
  for (size_t row = 0; row < rows.size(); ++row) {
    for (int64_t head = 0; head < 2; ++head) {
      const int64_t place = is_before ? room - 1 : rows.lengths()[row];
      cache.mutable_data<float>()[(static_cast<int64_t>(row) * 2 + head) * room + place] =
          static_cast<float>(100 * (row + 1) + static_cast<size_t>(rows.lengths()[row]));
    }
  }
  return {Tensor(), cache, Tensor::Of<float>(Shape{2, 2}, {1, 2, 3, 4})};
}

TEST(DecoderRows, StepsWriteIntoTheStatesThatTheyTake) {
  for (const auto joining :
       {DecoderPlan::Joining::kPaddedBefore, DecoderPlan::Joining::kPaddedBehind}) {
    const bool is_before = joining == DecoderPlan::Joining::kPaddedBefore;
    DecoderPlan plan = Plan(joining);
    plan.keeps_size = plan.in_place = true;
    DecoderRows rows(plan, {Tensor::Create});
    ASSERT_TRUE(rows.Change({}, std::vector<DecoderState>{State(2, 10), State(3, 20)}).ok());
    const std::vector<int64_t> tokens = {7, 8};
    const void* memory = nullptr;
    for (int64_t step = 0; step < 70; ++step) {
      const auto inputs = rows.StepInputs(tokens);
      ASSERT_TRUE(inputs.ok());
      const auto* const taken = (*inputs)[3].tensor().data<float>();
      const auto places = rows.StatesAfter();
      ASSERT_EQ(places.size(), 2U) << "a state of one size is not written into";
      EXPECT_FALSE(places[0].defined());
      EXPECT_EQ(places[1].raw(), taken + (is_before ? 1 : 0));
      EXPECT_EQ(places[1].owner().get() == memory, step != 0 && step != 61)
          << "until there is no more room: " << step;
      memory = places[1].owner().get();
      ASSERT_TRUE(rows.SetStates(Step(rows, is_before, places)).ok());
    }
    const auto inputs = rows.StepInputs(tokens);
    ASSERT_TRUE(inputs.ok());
    const auto numbers = Floats((*inputs)[3]);
    ASSERT_EQ(numbers.size(), 4U * 128);
    for (size_t row = 0; row < 2; ++row) {
      for (size_t head = 0; head < 2; ++head) {
        const size_t length = 72 + row, own = 2 + row;
        const float* const all = numbers.data() + (row * 2 + head) * 128;
        const float* const begin = all + (is_before ? 128 - length : 0);
        for (size_t i = 0; i < length; ++i) {
          const size_t expected = i < own ? 10 * (row + 1) + head * own + i : 100 * (row + 1) + i;
          EXPECT_EQ(begin[i], static_cast<float>(expected)) << row << ", " << head << ", " << i;
        }
        for (size_t i = 0; i < 128 - length; ++i) {
          EXPECT_EQ((is_before ? all : begin + length)[i], 0) << row << ", " << head << ", " << i;
        }
      }
    }
  }
}

TEST(DecoderRows, StatesAreCopiedWhereThePlanDoesNotSayThatTheyMove) {
  const DecoderPlan plan = Plan(DecoderPlan::Joining::kPaddedBefore);
  DecoderRows rows(plan, {Tensor::Create});
  ASSERT_TRUE(rows.Change({}, std::vector<DecoderState>{State(2, 10)}).ok());
  EXPECT_THAT(rows.StatesAfter(), ElementsAre());
}

TEST(DecoderRows, StatesHaveNoMoreRoomThanTheContext) {
  DecoderPlan plan = Plan(DecoderPlan::Joining::kPaddedBefore);
  plan.keeps_size = true;
  plan.context_length = 5;
  DecoderRows rows(plan, {Tensor::Create});
  const std::vector<DecoderState> one = {State(3, 1)};
  ASSERT_TRUE(rows.Change({}, one).ok());
  const auto inputs = rows.StepInputs(std::vector<int64_t>{9});
  ASSERT_TRUE(inputs.ok());
  EXPECT_EQ((*inputs)[3].tensor().shape(), (Shape{1, 2, 5, 1}));
}

// As a session has them whose runs leave states on its device.
TEST(DecoderRows, StatesThatStayOnADevice) {
  FakeDevice device;
  const auto moved = [&](const Tensor& tensor) -> Result<Tensor> {
    ONNXD_ASSIGN_OR_RETURN(const auto stream, device.MakeStream());
    ONNXD_ASSIGN_OR_RETURN(Tensor there, CopyToDevice(tensor, device, *stream));
    ONNXD_RETURN_IF_ERROR(stream->Synchronize());
    return there;
  };
  const auto left_there = [&](int64_t length, float first) {
    DecoderState state = State(length, first);
    for (Tensor& tensor : state.tensors) tensor = *moved(tensor);
    return state;
  };
  const auto on_host = [&](const Value& value) {
    EXPECT_EQ(value.tensor().device(), &device);
    return Floats(Value(*CopyToHost(value.tensor(), **device.MakeStream())));
  };
  const DecoderPlan plan = Plan(DecoderPlan::Joining::kPaddedBefore);
  DecoderRows rows(plan, {Tensor::Create, moved});
  ASSERT_TRUE(rows.Change({}, std::vector<DecoderState>{left_there(2, 10)}).ok());
  EXPECT_EQ(device.copies_out, 0) << "it is as it was";
  ASSERT_TRUE(
      rows.Change(std::vector<size_t>{0}, std::vector<DecoderState>{left_there(1, 20)}).ok());
  const auto inputs = rows.StepInputs(std::vector<int64_t>{1, 2});
  ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
  EXPECT_EQ(device.copies_out, 0) << "nor did the host see them when they were joined";
  EXPECT_THAT(on_host((*inputs)[3]), ElementsAre(10, 11, 12, 13, 0, 20, 0, 21));
  EXPECT_THAT(on_host((*inputs)[4]), ElementsAre(10, -10, 20, -20));
}

TEST(DecoderRows, StatesStayWhereTheRunLeftThem) {
  const DecoderPlan host = Plan(DecoderPlan::Joining::kAlone);
  EXPECT_THAT(host.OutputsOnDevice(), ElementsAre());
  DecoderPlan there = host;
  there.states_on_device = true;
  EXPECT_THAT(there.OutputsOnDevice(), ElementsAre(false, true, true));
}

TEST(DecoderRows, SaysHowManyLogitsOfAPromptAreWanted) {
  DecoderPlan plan = Plan(DecoderPlan::Joining::kPaddedBefore);
  const size_t first = plan.inputs.size();
  plan.inputs.push_back({DecoderPlan::Role::kLogitsToKeep, DataType::kInt64});
  plan.inputs.push_back({DecoderPlan::Role::kLastRows, DataType::kInt64});
  const std::vector<int64_t> tokens = {5, 6, 7};
  for (const int64_t logits : {1, 3}) {
    const auto inputs = PromptInputs(plan, State(2, 1), tokens, logits);
    ASSERT_TRUE(inputs.ok());
    EXPECT_THAT((*inputs)[first].tensor().elements<int64_t>(), ElementsAre(logits));
    EXPECT_EQ((*inputs)[first + 1].tensor().shape(), Shape{logits});
  }
  DecoderRows rows(plan, {Tensor::Create});
  const std::vector<DecoderState> joining = {State(2, 10), State(3, 10)};
  ASSERT_TRUE(rows.Change({}, joining).ok());
  const auto step = rows.StepInputs(std::vector<int64_t>{8, 9});
  ASSERT_TRUE(step.ok());
  EXPECT_EQ((*step)[first + 1].tensor().shape(), Shape{1});
}

}  // namespace
}  // namespace onnxd
