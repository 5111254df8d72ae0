// How likely a model had a token, of the logits that it gave.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace onnxd {

struct TokenScore {
  int64_t token = 0;
  float log_probability = 0;  // natural
};

struct TokenScores {
  TokenScore own;
  std::vector<TokenScore> likeliest;  // the likeliest first; of equal ones the lower number
};

// `likeliest`: how many of these, fewer where the vocabulary has fewer. NaN counts as never; so
// does a token beyond the vocabulary. Of a token that is never to come it is the lowest number.
TokenScores ScoreToken(std::span<const float> logits, int64_t token, int64_t likeliest);

}  // namespace onnxd
