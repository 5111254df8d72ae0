#include "server/generation/token_scores.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int64_t> Likeliest(const std::vector<float>& logits, int64_t count) {
  std::vector<int64_t> tokens;
  for (const TokenScore& score : ScoreToken(logits, 0, count).likeliest) {
    tokens.push_back(score.token);
  }
  return tokens;
}

TEST(TokenScores, AreLogarithmsOfSharesOfAllExponentials) {
  std::vector<float> logits;
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    logits.push_back(static_cast<float>(i % 37) / 4 + 100);
    sum += std::exp(logits.back() - 100);
  }
  for (const int64_t token : {0, 36, 9'999}) {
    const float expected =
        logits[static_cast<size_t>(token)] - 100 - static_cast<float>(std::log(sum));
    EXPECT_THAT(ScoreToken(logits, token, 0).own.log_probability, FloatNear(expected, 1e-4f));
  }
}

TEST(TokenScores, BeginWithTheLikeliest) {
  EXPECT_THAT(Likeliest({1, 5, 3, 5, 2}, 3), ElementsAre(1, 3, 2));
  EXPECT_THAT(Likeliest({1, 2}, 20), ElementsAre(1, 0));
  EXPECT_THAT(Likeliest({1, 2}, 0), ElementsAre());
}

TEST(TokenScores, OfWhatNeverComesAreTheLowestNumber) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  EXPECT_EQ(ScoreToken(std::vector<float>{0, -kInfinity}, 1, 0).own.log_probability, kLowest);
  EXPECT_EQ(ScoreToken(std::vector<float>{0, kNan}, 1, 0).own.log_probability, kLowest);
  EXPECT_EQ(ScoreToken(std::vector<float>{0, kNan}, 0, 0).own.log_probability, 0);
  EXPECT_EQ(ScoreToken(std::vector<float>{0, 1}, 7, 0).own.log_probability, kLowest);
  EXPECT_EQ(ScoreToken(std::vector<float>{kNan}, 0, 0).own.log_probability, kLowest);
  EXPECT_THAT(Likeliest({kNan, 1, kNan, 2}, 4), ElementsAre(3, 1));
}

}  // namespace
}  // namespace onnxd
