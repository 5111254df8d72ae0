#include "server/service/response_cache.h"

#include <gtest/gtest.h>

#include <optional>

namespace onnxd {
namespace {

using Outputs = Result<std::vector<Value>>;

class ResponseCacheTest : public testing::Test {
 protected:
  ResponseCacheTest() { cache_.SetLimit(1 << 20); }

  static std::shared_ptr<const ModelVersion> Version(const std::string& number = "1") {
    auto version = std::make_shared<ModelVersion>();
    version->model = "m";
    version->version = number;
    return version;
  }
  ResponseCache::Question Of(Tensor input, std::vector<size_t> selected = {0}) {
    return {version_, {std::move(input)}, std::move(selected), {}};
  }
  static Tensor Number(float number) { return Tensor::Scalar(number); }
  ResponseCache::Decision Ask(const ResponseCache::Question& question) {
    return cache_.Ask(question, [this](const Outputs& outputs) { answers_.push_back(outputs); });
  }
  float Answer(size_t i) { return (*answers_[i])[0].tensor().data<float>()[0]; }

  std::shared_ptr<const ModelVersion> version_ = Version();
  std::shared_ptr<MemoryAccount> memory_ = std::make_shared<MemoryAccount>();
  ServerMetrics metrics_;
  ResponseCache cache_{metrics_, memory_};
  std::vector<Outputs> answers_;
};

TEST_F(ResponseCacheTest, GivesWhatWasComputed) {
  auto first = Ask(Of(Number(1)));
  ASSERT_TRUE(first.computes);
  first.computation->Settle(std::vector<Value>{Number(10)});
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(Answer(0), 10);
}

TEST_F(ResponseCacheTest, OnlyEqualQuestionsAreEqual) {
  Ask(Of(Number(1))).computation->Settle(std::vector<Value>{Number(10)});
  EXPECT_TRUE(Ask(Of(Number(2))).computes);
  EXPECT_TRUE(Ask(Of(Tensor::Of<float>(Shape{1}, {1}))).computes);     // another shape
  EXPECT_TRUE(Ask(Of(Tensor::Scalar<int32_t>(0x3f800000))).computes);  // the same bytes
  EXPECT_TRUE(Ask(Of(Number(1), {1})).computes);
  version_ = Version("2");
  EXPECT_TRUE(Ask(Of(Number(1))).computes);
  EXPECT_TRUE(answers_.empty());
}

TEST_F(ResponseCacheTest, TextsAreToldApartByWhereTheyEnd) {
  const auto texts = [this](std::initializer_list<std::string> parts) {
    return Of(Tensor::Of<std::string>(Shape{static_cast<int64_t>(parts.size())}, parts));
  };
  Ask(texts({"ab", "c"})).computation->Settle(std::vector<Value>{Number(10)});
  EXPECT_TRUE(Ask(texts({"a", "bc"})).computes);
  EXPECT_FALSE(Ask(texts({"ab", "c"})).computes);
}

TEST_F(ResponseCacheTest, EqualQuestionsAtOnceWaitForOneAnswer) {
  auto first = Ask(Of(Number(1)));
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  EXPECT_TRUE(answers_.empty());
  first.computation->Settle(std::vector<Value>{Number(10)});
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(Answer(1), 10);
}

TEST_F(ResponseCacheTest, AFailureIsSharedButNotKept) {
  auto first = Ask(Of(Number(1)));
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  first.computation->Settle(InvalidArgument("no"));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Ask(Of(Number(1))).computes);
}

TEST_F(ResponseCacheTest, WhoWaitsForOneThatIsLostComputesForItself) {
  auto first = Ask(Of(Number(1)));
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  first.computation.reset();  // without an answer
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kAborted);
  auto second = Ask(Of(Number(1)));
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  second.computation->Settle(Cancelled("its client went"));
  EXPECT_EQ(answers_[1].status().code(), StatusCode::kAborted);
}

TEST_F(ResponseCacheTest, NobodyWaitsBeyondItsOwnDeadline) {
  const auto now = std::chrono::steady_clock::now();
  auto patient = Of(Number(1)), hurried = Of(Number(1));
  patient.deadline = now + std::chrono::hours(1);
  hurried.deadline = now + std::chrono::minutes(1);
  const auto first = Ask(patient);
  const auto second = Ask(hurried);
  EXPECT_TRUE(second.computes);
  EXPECT_EQ(second.computation, nullptr);
}

// Its client may write an input's memory while it is computed (shared memory).
TEST_F(ResponseCacheTest, KeepsInputsAndOutputsAsTheyWere) {
  Tensor input = Number(1), output = Number(10);
  auto first = Ask(Of(input));
  input.mutable_data<float>()[0] = 2;
  first.computation->Settle(std::vector<Value>{output});
  output.mutable_data<float>()[0] = 20;
  EXPECT_TRUE(Ask(Of(Number(2))).computes);
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  EXPECT_EQ(Answer(0), 10);
}

TEST_F(ResponseCacheTest, WhatWasUsedLongestAgoGoesFirst) {
  cache_.SetLimit(3 * 600);
  for (const float number : {1, 2, 3}) {
    Ask(Of(Number(number))).computation->Settle(std::vector<Value>{Number(number)});
  }
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  Ask(Of(Number(4))).computation->Settle(std::vector<Value>{Number(4)});
  EXPECT_FALSE(Ask(Of(Number(1))).computes);
  EXPECT_FALSE(Ask(Of(Number(3))).computes);
  EXPECT_TRUE(Ask(Of(Number(2))).computes);
}

TEST_F(ResponseCacheTest, ItsMemoryIsAccountedFor) {
  Ask(Of(Tensor::Create(DataType::kFloat, Shape{1000}).value()))
      .computation->Settle(std::vector<Value>{Number(1)});
  EXPECT_GT(memory_->bytes(), 4000);
  EXPECT_LT(memory_->bytes(), 6000);
  cache_.SetLimit(0);
  EXPECT_EQ(memory_->bytes(), 0);
  EXPECT_EQ(Ask(Of(Number(1))).computation, nullptr);
}

TEST_F(ResponseCacheTest, KeepsNothingThatTheProcessHasNoMemoryFor) {
  memory_->SetLimit(100);
  const auto decision = Ask(Of(Number(1)));
  EXPECT_TRUE(decision.computes);
  EXPECT_EQ(decision.computation, nullptr);
}

}  // namespace
}  // namespace onnxd
