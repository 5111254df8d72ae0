#include "server/generation/sampling.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

namespace onnxd {
namespace {

using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// How often each token came.
std::map<int64_t, int> Counts(SamplingParameters parameters, const std::vector<float>& logits,
                              int times = 4000) {
  parameters.seed = 5;
  std::map<int64_t, int> counts;
  for (int i = 0; i < times; ++i) {
    *parameters.seed += 1;
    Sampler sampler(parameters, {});
    std::vector<float> own = logits;
    ++counts[sampler.Next(own)];
  }
  return counts;
}

int64_t Next(Sampler& sampler, std::vector<float> logits) { return sampler.Next(logits); }

TEST(Sampler, TakesTheLargestAtTemperatureZero) {
  SamplingParameters greedy;
  greedy.temperature = 0;
  Sampler sampler(greedy, {});
  EXPECT_EQ(Next(sampler, {1, 3, 2}), 1);
  EXPECT_EQ(Next(sampler, {kNan, -3, -2}), 2);
  EXPECT_EQ(Next(sampler, {kNan, kNan}), 0);
}

TEST(Sampler, TakesTokensAsOftenAsTheirProbabilitySays) {
  SamplingParameters warm;
  const auto counts = Counts(warm, {0, std::log(2.0f), std::log(5.0f)});
  EXPECT_NEAR(counts.at(0), 500, 100);
  EXPECT_NEAR(counts.at(1), 1000, 130);
  EXPECT_NEAR(counts.at(2), 2500, 150);
  warm.temperature = 0.5;  // squares
  const auto cold = Counts(warm, {0, std::log(2.0f), std::log(5.0f)});
  EXPECT_NEAR(cold.at(2), 4000 * 25.0 / 30, 150);
}

TEST(Sampler, LeavesOutUnlikelyTokens) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(3.0f),
                                     std::log(4.0f)};
  SamplingParameters top_k;
  top_k.top_k = 2;
  EXPECT_EQ(Counts(top_k, logits).size(), 2U);
  SamplingParameters top_p;
  top_p.top_p = 0.65;  // 0.4 + 0.3
  EXPECT_EQ(Counts(top_p, logits).size(), 2U);
  top_p.top_p = 0.75;
  EXPECT_EQ(Counts(top_p, logits).size(), 3U);
  SamplingParameters min_p;
  min_p.min_p = 0.6;  // of 0.4
  EXPECT_EQ(Counts(min_p, logits).size(), 2U);
  SamplingParameters both;
  both.top_k = 3;
  both.top_p = 0.4;  // of the three that are left 4/9 alone
  EXPECT_EQ(Counts(both, logits).size(), 1U);
}

TEST(Sampler, ReachesFarIntoALargeVocabulary) {
  std::vector<float> logits(5000, 0.0f);
  SamplingParameters half;
  half.top_p = 0.5;
  const auto counts = Counts(half, logits, 2000);
  EXPECT_GT(counts.size(), 1000U);
  EXPECT_LT(counts.rbegin()->first, 2500);
}

TEST(Sampler, MakesTokensThatAreThereLessLikely) {
  SamplingParameters greedy;
  greedy.temperature = 0;
  greedy.repetition_penalty = 2;
  const std::vector<int64_t> prompt = {1};
  Sampler repetition(greedy, prompt);
  EXPECT_EQ(Next(repetition, {2, 3, 1}), 0);       // 3 / 2
  EXPECT_EQ(Next(repetition, {-1, -1, -1.5}), 2);  // -2, -2
  greedy.repetition_penalty = 1;
  greedy.frequency_penalty = 1;
  Sampler frequency(greedy, prompt);
  EXPECT_EQ(Next(frequency, {2.5, 3, 0}), 1);  // the prompt does not count
  EXPECT_EQ(Next(frequency, {2.5, 3, 0}), 0);
  EXPECT_EQ(Next(frequency, {2.5, 3, 0}), 1);
  greedy.logit_bias = {{2, 50}, {70, 1}};
  Sampler bias(greedy, prompt);
  EXPECT_EQ(Next(bias, {1, 2, 0}), 2);
}

TEST(Sampler, CopesWithLogitsThatAreNoNumbers) {
  SamplingParameters warm;
  Sampler sampler(warm, {});
  EXPECT_EQ(Next(sampler, {kNan, 1}), 1);
  EXPECT_EQ(Next(sampler, {-kInfinity, -kInfinity}), 0);
  EXPECT_EQ(Next(sampler, {0, kInfinity}), 1);
}

TEST(Sampling, NamesWhatIsOutOfItsRange) {
  SamplingParameters parameters;
  EXPECT_TRUE(CheckSampling(parameters).ok());
  parameters.top_p = 1.5;
  EXPECT_THAT(CheckSampling(parameters).message(), HasSubstr("top_p is 1.5, expected 0 to 1"));
  parameters.top_p = std::nan("");
  EXPECT_FALSE(CheckSampling(parameters).ok());
}

}  // namespace
}  // namespace onnxd
