#include "server/generation/generator.h"

#include <gmock/gmock.h>

#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kVocabulary = 8;

TensorSignature Signature(const std::string& name, DataType type, SymbolicShape shape) {
  TensorSignature signature;
  signature.name = name;
  signature.type.kind = ValueType::Kind::kTensor;
  signature.type.element = type;
  signature.type.shape = std::move(shape);
  return signature;
}

// Behind each token the next number comes; 7 ends a text. The state holds the tokens.
class CountingModel {
 public:
  CountingModel() {
    const auto batch = Dimension::Symbol("batch"), tokens = Dimension::Symbol("tokens");
    plan_->decoder = *MakeDecoderPlan(
        {Signature("input_ids", DataType::kInt64, {batch, tokens}),
         Signature("attention_mask", DataType::kInt64, {batch, Dimension::Symbol("all")}),
         Signature("past_0", DataType::kFloat, {batch, 1, Dimension::Symbol("past"), 1})},
        {Signature("logits", DataType::kFloat, {batch, tokens, kVocabulary}),
         Signature("present_0", DataType::kFloat, {batch, 1, Dimension::Symbol("all"), 1})});
    plan_->decoder.joining = DecoderPlan::Joining::kPaddedBefore;
    plan_->token_decoder = *ParseTokenDecoder(
        R"({"decoder": {"type": "Fuse"}, "model": {"vocab": {"0": 0, "1": 1, "2": 2, "3": 3,
            "4": 4, "5": 5, "6": 6, "7": 7}}})");
    plan_->context_length = 100;
    plan_->stop_tokens = {7};
    plan_->sampling.temperature = 0;
    plan_->max_sequences = 8;
    plan_->queue_requests = 8;
    plan_->prefill_tokens = 2;
    metrics_handle_->AddGeneration();
  }

  // Starts with the first request; `most_rows`: more of them a run refuses, or the memory.
  void Start(int64_t most_rows = 100, int64_t most_joined = 100) {
    QueuePolicy policy;
    policy.runs_inline = false;
    policy.is_admitted = true;
    const auto run = [this, most_rows](std::span<const Value> inputs,
                                       const RunLimits&) -> Result<std::vector<Value>> {
      const int64_t rows = inputs[0].tensor().shape()[0];
      if (rows > most_rows) return Internal("too many rows");
      ++runs_of_[rows];
      return Compute(inputs);
    };
    auto scheduled =
        std::make_shared<ScheduledModel>("m", BatchComputation{run}, metrics_handle_, policy);
    const TensorMaker make = [most_joined](DataType type, const Shape& shape) -> Result<Tensor> {
      if (shape[0] > most_joined) return ResourceExhausted("no memory");
      return Tensor::Create(type, shape);
    };
    generator_ = std::make_shared<Generator>(
        plan_, scheduler_, scheduled, StateMemory{make}, [this] { ++idle_; }, metrics_handle_);
  }

  void Stop() { scheduler_.Abandon(); }

  // What a request becomes: its text, or the message of its failure.
  using Answers = std::map<int, std::string>;
  void Submit(int id, std::vector<int64_t> prompt, std::optional<int64_t> max_tokens = {},
              std::shared_ptr<std::atomic<bool>> cancelled = nullptr) {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling = plan_->sampling;
    request.max_tokens = max_tokens;
    request.cancelled = std::move(cancelled);
    request.on_text = [this, id](const GenerationPiece& piece) {
      std::lock_guard lock(mutex_);
      texts_[id] += piece.text;
    };
    SubmitRequest(id, std::move(request));
  }

  void SubmitRequest(int id, GenerationRequest request) {
    request.done = [this, id](const Result<GenerationResult>& result) {
      std::lock_guard lock(mutex_);
      answers_[id] = result.ok() ? texts_[id] : std::string(result.status().message());
      done_.notify_all();
    };
    generator_->Submit(std::move(request), nullptr);
  }

  Answers Wait(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        done_.wait_for(lock, std::chrono::seconds(20), [&] { return answers_.size() >= count; }));
    return answers_;
  }

  GenerationPlan& plan() { return *plan_; }
  int runs_of(int64_t rows) { return runs_of_[rows]; }
  int idle() const { return idle_; }

 private:
  static Result<std::vector<Value>> Compute(std::span<const Value> inputs) {
    const Tensor &ids = inputs[0].tensor(), &mask = inputs[1].tensor(), &past = inputs[2].tensor();
    const int64_t rows = ids.shape()[0], tokens = ids.shape()[1], before = past.shape()[2];
    Tensor logits = *Tensor::Create(DataType::kFloat, Shape{rows, tokens, kVocabulary});
    Tensor present = *Tensor::Create(DataType::kFloat, Shape{rows, 1, before + tokens, 1});
    for (int64_t row = 0; row < rows; ++row) {
      float* const state = present.mutable_data<float>() + row * (before + tokens);
      std::copy_n(past.data<float>() + row * before, before, state);
      for (int64_t i = 0; i < tokens; ++i) {
        const int64_t id = ids.data<int64_t>()[row * tokens + i];
        state[before + i] = static_cast<float>(id);
        float* const own = logits.mutable_data<float>() + (row * tokens + i) * kVocabulary;
        std::fill_n(own, kVocabulary, 0.0f);
        own[(id + 1) % kVocabulary] = 1;
      }
      // A text counts up by one, and stands behind zeros.
      const int64_t* const there = mask.data<int64_t>() + row * (before + tokens);
      const auto first = std::find(there, there + before + tokens, 1) - there;
      for (int64_t i = 0; i < before + tokens; ++i) {
        EXPECT_EQ(there[i], i >= first ? 1 : 0);
        EXPECT_TRUE(i <= first ? i == first || state[i] == 0 : state[i] == state[i - 1] + 1);
      }
    }
    return std::vector<Value>{std::move(logits), std::move(present)};
  }

  std::shared_ptr<GenerationPlan> plan_ = std::make_shared<GenerationPlan>();
  ServerMetrics metrics_;
  std::shared_ptr<ModelMetrics> metrics_handle_ = metrics_.ForModel("m", "1");
  std::mutex mutex_;
  std::condition_variable done_;
  std::map<int, std::string> texts_;  // guarded by mutex_
  Answers answers_;                   // guarded by mutex_
  std::map<int64_t, std::atomic<int>> runs_of_;
  std::atomic<int> idle_ = 0;
  Scheduler scheduler_{{2, 64, 0}, metrics_};
  std::shared_ptr<Generator> generator_;
};

TEST(Generator, WritesUntilATokenThatEndsIt) {
  CountingModel model;
  model.Start();
  model.Submit(0, {1, 2});
  EXPECT_EQ(model.Wait(1).at(0), "3456");
  model.Submit(1, {0}, 3);
  EXPECT_EQ(model.Wait(2).at(1), "123");
  for (int i = 0; i < 2000 && model.idle() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(model.idle(), 0);
}

TEST(Generator, SaysHowLikelyTokensWere) {
  CountingModel model;
  model.Start();
  std::vector<int64_t> tokens, prompt;
  GenerationRequest request;
  request.prompt = {1, 2, 3};
  request.sampling = model.plan().sampling;
  request.likeliest = 1;
  const float likely = 1 - std::log(kVocabulary - 1 + std::exp(1.0f));
  request.on_prompt = [&](const std::vector<TokenScores>& scores) {
    for (const TokenScores& score : scores) {
      prompt.push_back(score.own.token);
      EXPECT_EQ(score.likeliest[0].token, score.own.token);
      EXPECT_NEAR(score.own.log_probability, likely, 1e-5);
    }
  };
  request.on_text = [&](const GenerationPiece& piece) {
    EXPECT_EQ(piece.tokens.size(), 1);
    for (const TokenScores& score : piece.tokens) {
      tokens.push_back(score.own.token);
      EXPECT_EQ(score.likeliest[0].token, score.own.token);
      EXPECT_NEAR(score.own.log_probability, likely, 1e-5);
    }
  };
  model.SubmitRequest(0, std::move(request));
  model.Wait(1);
  EXPECT_THAT(prompt, ElementsAre(2, 3));
  EXPECT_THAT(tokens, ElementsAre(4, 5, 6));
}

TEST(Generator, WritesNothingWhereNoTokenMayCome) {
  CountingModel model;
  model.Start();
  std::vector<int64_t> prompt(100);  // all of the context
  std::iota(prompt.begin(), prompt.end(), 0);
  model.Submit(0, prompt, 0);
  EXPECT_EQ(model.Wait(1).at(0), "");
}

TEST(Generator, RefusesPromptsWithoutRoomForAnAnswer) {
  CountingModel model;
  model.Start();
  model.Submit(0, {});
  model.Submit(1, std::vector<int64_t>(100, 0));
  const auto answers = model.Wait(2);
  EXPECT_THAT(answers.at(0), HasSubstr("no tokens"));
  EXPECT_THAT(answers.at(1), HasSubstr("100 tokens"));
}

TEST(Generator, TheLastOneGivesWayWhenARunFails) {
  CountingModel model;
  model.plan().prefill_tokens = 100;
  model.Start(/*most_rows=*/2);
  for (int id = 0; id < 4; ++id) model.Submit(id, {0, 1});
  const auto answers = model.Wait(4);
  int written = 0, failed = 0;
  for (const auto& [id, text] : answers) {
    written += text == "23456";
    failed += text == "too many rows";
  }
  EXPECT_EQ(written + failed, 4);
  EXPECT_GE(written, 2);
}

TEST(Generator, WithoutMemoryForAllThoseThatAreThereGoOn) {
  CountingModel model;
  model.plan().prefill_tokens = 100;
  model.Start(100, /*most_joined=*/2);
  for (int id = 0; id < 6; ++id) model.Submit(id, {0, 1});
  const auto answers = model.Wait(6);
  int written = 0, failed = 0;
  for (const auto& [id, text] : answers) {
    written += text == "23456";
    failed += text == "no memory";
  }
  EXPECT_EQ(written + failed, 6);
}

TEST(Generator, TextsOfClientsThatAreGoneEnd) {
  CountingModel model;
  model.plan().max_sequences = 1;
  model.Start();
  const auto gone = std::make_shared<std::atomic<bool>>(true);
  model.Submit(0, {0, 1}, {}, gone);
  model.Submit(1, {0, 1});
  const auto answers = model.Wait(2);
  EXPECT_THAT(answers.at(0), HasSubstr("the client is gone"));
  EXPECT_EQ(answers.at(1), "23456");
}

TEST(Generator, RefusesMoreThanMayWait) {
  CountingModel model;
  model.plan().max_sequences = 1;
  model.plan().queue_requests = 3;
  model.Start();
  for (int id = 0; id < 40; ++id) model.Submit(id, {0});
  const auto answers = model.Wait(40);
  int refused = 0;
  for (const auto& [id, text] : answers) {
    EXPECT_TRUE(text == "123456" || text == "3 requests wait for this model already") << text;
    refused += text != "123456";
  }
  EXPECT_LT(refused, 40);
}

TEST(Generator, ManyComeAndGo) {
  CountingModel model;
  model.plan().queue_requests = 1000;
  model.Start();
  for (int id = 0; id < 200; ++id) {
    std::vector<int64_t> prompt;
    for (int64_t token = 0; token <= id % 5; ++token) prompt.push_back(token);
    model.Submit(id, prompt, id % 7 == 0 ? std::nullopt : std::optional<int64_t>(id % 7));
  }
  const std::string all = "123456";
  for (const auto& [id, text] : model.Wait(200)) {
    const std::string rest = all.substr(static_cast<size_t>(id % 5));
    EXPECT_EQ(text, id % 7 == 0 ? rest : rest.substr(0, static_cast<size_t>(id % 7))) << id;
  }
}

TEST(Generator, ManyThatWaitAreRefusedWhenTheServerStops) {
  CountingModel model;
  model.plan().max_sequences = 1;
  model.plan().queue_requests = 20'000;
  model.plan().prefill_tokens = 1;
  model.Start();
  for (int id = 0; id < 20'000; ++id) model.Submit(id, {0});
  model.Stop();
  model.Wait(20'000);
}

}  // namespace
}  // namespace onnxd
