#include "runtime/session/dropped_tokens.h"

#include <vector>

#include "runtime/tensor/convert.h"
#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

const Dimension kBatch = Dimension::Symbol("batch"), kPast = Dimension::Symbol("past");

// Two heads of one number: a state, new tokens, and what both give together; the sum over tokens
// and the number of those before stand for what else reads the state.
TestModel Decoder(bool reads_elsewhere) {
  TestModel model(17);
  model.Input("tokens", DataType::kFloat, {kBatch, 2, Dimension::Symbol("new"), 1});
  model.Input("past_0", DataType::kFloat, {kBatch, 2, kPast, 1});
  model.Node("Concat", {"past_0", "tokens"}, {"present_0"}, With({{"axis", int64_t{-2}}}));
  model.Output("present_0");
  if (!reads_elsewhere) return model;
  model.Node("ReduceSum", {"past_0"}, {"sum"}).Node("Shape", {"past_0"}, {"shape"});
  return model.Output("sum").Output("shape");
}

std::unique_ptr<InferenceSession> Load(const TestModel& model, const std::string& states = "past") {
  SessionOptions options = DefaultSession();
  options.dropped_tokens.states = states;
  TestModel copy = model;
  auto session = InferenceSession::FromModel(std::move(copy.model()), options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return session.ok() ? *std::move(session) : nullptr;
}

std::vector<Value> Inputs(int64_t past, int64_t dropped) {
  return {Numbers(Shape{2, 2, 1, 1}, 1), Numbers(Shape{2, 2, past, 1}),
          *Tensor::Create(DataType::kInt64, Shape{dropped})};
}

TEST(DroppedTokens, StatesKeepTheirSize) {
  const auto session = Load(Decoder(false));
  ASSERT_TRUE(session);
  ASSERT_EQ(session->inputs().size(), 3u);
  EXPECT_EQ(session->inputs()[2].name, DroppedTokens::kInput);
  const auto inputs = Inputs(5, 1);
  const auto outputs = session->Run(inputs, {});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  ASSERT_EQ((*outputs)[0].tensor().shape(), (Shape{2, 2, 5, 1}));
  const auto past = inputs[1].tensor().elements<float>(),
             added = inputs[0].tensor().elements<float>();
  const auto present = (*outputs)[0].tensor().elements<float>();
  for (size_t row = 0; row < 4; ++row) {
    for (size_t token = 0; token < 4; ++token) {
      EXPECT_EQ(present[row * 5 + token], past[row * 5 + token + 1]) << row << ", " << token;
    }
    EXPECT_EQ(present[row * 5 + 4], added[row]) << row;
  }
}

TEST(DroppedTokens, OfStatesOfAnyType) {
  for (const DataType type : {DataType::kFloat16, DataType::kUint8, DataType::kDouble}) {
    TestModel model(17);
    model.Input("tokens", type, {kBatch, 2, Dimension::Symbol("new"), 1});
    model.Input("past_0", type, {kBatch, 2, kPast, 1});
    model.Node("Concat", {"past_0", "tokens"}, {"present_0"}, With({{"axis", int64_t{2}}}));
    const auto session = Load(model.Output("present_0"));
    ASSERT_TRUE(session);
    const auto numbers = [&](const Shape& shape) { return *Converted(Numbers(shape, 1), type); };
    const auto outputs = session->Run({{numbers(Shape{1, 2, 1, 1}), numbers(Shape{1, 2, 3, 1}),
                                        *Tensor::Create(DataType::kInt64, Shape{1})}},
                                      {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    const auto present = Converted((*outputs)[0].tensor(), DataType::kDouble);
    const auto past = Converted(numbers(Shape{1, 2, 3, 1}), DataType::kDouble);
    ASSERT_EQ(present->shape(), (Shape{1, 2, 3, 1}));
    EXPECT_EQ(present->elements<double>()[0], past->elements<double>()[1]);
    EXPECT_EQ(present->elements<double>()[4], past->elements<double>()[5]);
  }
}

TEST(DroppedTokens, NoneAndAllOfThem) {
  const auto session = Load(Decoder(false));
  ASSERT_TRUE(session);
  for (const auto& [past, dropped] : {std::pair<int64_t, int64_t>{0, 0}, {3, 0}, {3, 2}, {3, 3}}) {
    const auto outputs = session->Run(Inputs(past, dropped), {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ((*outputs)[0].tensor().shape(), (Shape{2, 2, past - dropped + 1, 1}));
  }
  const auto beyond = session->Run(Inputs(2, 3), {});
  EXPECT_EQ(beyond.status().code(), StatusCode::kInvalidArgument) << beyond.status().ToString();
}

TEST(DroppedTokens, WhatElseReadsAStateDoesNotSeeThem) {
  const auto session = Load(Decoder(true));
  ASSERT_TRUE(session);
  const auto inputs = Inputs(5, 2);
  const auto outputs = session->Run(inputs, {});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ((*outputs)[2].tensor().elements<int64_t>()[2], 3);
  double sum = 0;
  const auto past = inputs[1].tensor().elements<float>();
  for (size_t i = 0; i < past.size(); ++i) sum += i % 5 < 2 ? 0.0 : double{past[i]};
  EXPECT_NEAR((*outputs)[1].tensor().elements<float>()[0], sum, 1e-4);
}

// Append is there a Slice, which is read where the state lies, and a Concat.
TEST(DroppedTokens, OnADevice) {
  for (const char* provider : {"opencl", "fused"}) {
    SessionOptions options = DefaultSession();
    options.providers = *MakeProviders({provider, "cpu"});
    if (options.providers.size() < 2) GTEST_SKIP() << "no OpenCL on this machine";
    options.dropped_tokens.states = "past";
    TestModel model = Decoder(false);
    const auto session = InferenceSession::FromModel(std::move(model.model()), options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    EXPECT_TRUE((*session)->info().nodes_by_provider.contains(provider));
    for (const int64_t dropped : {0, 1, 3}) {
      const auto inputs = Inputs(5, dropped);
      const auto got = (*session)->Run(inputs, {}), wanted = Load(Decoder(false))->Run(inputs, {});
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
      EXPECT_EQ((*got)[0].tensor().shape(), (*wanted)[0].tensor().shape());
      EXPECT_EQ(Elements(got), Elements(wanted)) << provider << ", " << dropped;
    }
  }
}

TEST(DroppedTokens, LeaveGraphsWithoutSuchStatesAsTheyAre) {
  EXPECT_EQ(Load(Decoder(false), "")->inputs().size(), 2u) << "not asked for";
  EXPECT_EQ(Load(Decoder(false), "memory")->inputs().size(), 2u) << "no such name";
  TestModel of_one_size(17);
  of_one_size.Input("past_0", DataType::kFloat, {kBatch, 4});
  of_one_size.Node("Abs", {"past_0"}, {"present_0"}).Output("present_0");
  EXPECT_EQ(Load(of_one_size)->inputs().size(), 1u) << "a state of one size";
}

}  // namespace
}  // namespace onnxd
