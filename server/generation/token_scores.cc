#include "server/generation/token_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/math/simd.h"

namespace onnxd {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr size_t kPiece = 4096;

bool IsLikelier(const TokenScore& a, const TokenScore& b) {
  return a.log_probability > b.log_probability;
}

// By their logits, in the place of which log probabilities come later.
std::vector<TokenScore> Likeliest(std::span<const float> logits, size_t count) {
  std::vector<TokenScore> best;
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    if (best.size() == count && !(logits[i] > best.back().log_probability)) continue;
    if (std::isnan(logits[i])) continue;
    const TokenScore score{static_cast<int64_t>(i), logits[i]};
    if (best.size() == count) best.pop_back();
    best.insert(std::upper_bound(best.begin(), best.end(), score, IsLikelier), score);
  }
  return best;
}

// The logarithm of the sum of all exponentials.
float LogOfSum(std::span<const float> logits) {
  float largest = kNever;
  for (const float logit : logits) largest = logit > largest ? logit : largest;
  if (!std::isfinite(largest)) return largest;
  std::array<float, kPiece> piece, exponentials;
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kPiece) {
    const auto rest = logits.subspan(begin, std::min(kPiece, logits.size() - begin));
    std::transform(rest.begin(), rest.end(), piece.begin(),
                   [](float logit) { return std::isnan(logit) ? kNever : logit; });
    sum += math::CurrentSimd().exp_sum(piece.data(), exponentials.data(),
                                       static_cast<int64_t>(rest.size()), largest, 1);
  }
  return largest + static_cast<float>(std::log(sum));
}

}  // namespace

TokenScores ScoreToken(std::span<const float> logits, int64_t token, int64_t likeliest) {
  const float all = LogOfSum(logits);
  const auto log_probability = [all](float logit) {
    const float difference = logit - all;
    return std::isfinite(difference) ? std::min(difference, 0.0f)
                                     : std::numeric_limits<float>::lowest();
  };
  const bool is_there = token >= 0 && token < static_cast<int64_t>(logits.size());
  TokenScores scores;
  scores.own = {token, log_probability(is_there ? logits[static_cast<size_t>(token)] : kNever)};
  scores.likeliest = Likeliest(logits, static_cast<size_t>(std::max<int64_t>(likeliest, 0)));
  for (TokenScore& score : scores.likeliest) {
    score.log_probability = log_probability(score.log_probability);
  }
  return scores;
}

}  // namespace onnxd
