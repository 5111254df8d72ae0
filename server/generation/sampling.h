// Which token comes next: of a model's logits, as generate() of Hugging Face's transformers and
// OpenAI's API have it, in this order:
//
//   repetition_penalty   logits of tokens that are there (prompt included) are divided by it, those
//                        below zero multiplied
//   presence_penalty, frequency_penalty
//                        is subtracted from logits of tokens that were written, for each its times
//   logit_bias           is added
//   temperature          logits are divided by it; 0: the largest one is taken
//   top_k                so many of the largest are left
//   top_p                of these the largest, until their probabilities come to it
//   min_p                of these the ones with that share of the largest's probability
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct SamplingParameters {
  double temperature = 1;
  double top_p = 1;
  double min_p = 0;
  int64_t top_k = 0;  // 0: all
  double repetition_penalty = 1;
  double presence_penalty = 0, frequency_penalty = 0;
  std::map<int64_t, double> logit_bias;  // by token
  std::optional<uint64_t> seed;          // of equal ones the same tokens come
  bool operator==(const SamplingParameters&) const = default;
};

// kInvalidArgument names what is out of its range.
Status CheckSampling(const SamplingParameters& parameters);

// The choices of one sequence, one thread at a time.
class Sampler {
 public:
  Sampler(SamplingParameters parameters, std::span<const int64_t> prompt);
  // Takes the next token, and knows it from then on. Changes the logits. Those that are NaN are
  // never taken; with no number among them it is 0. Requires logits.
  int64_t Next(std::span<float> logits);

 private:
  bool penalizes_repetition() const { return parameters_.repetition_penalty != 1; }
  void Penalize(std::span<float> logits) const;
  int64_t Choose(std::span<const float> logits);

  const SamplingParameters parameters_;
  std::mt19937_64 random_;
  std::unordered_set<int64_t> there_;             // of the prompt, and written
  std::unordered_map<int64_t, int64_t> written_;  // how often
  // Kept for their memory.
  std::vector<std::pair<float, int64_t>> likely_;
  std::vector<float> weights_;
};

}  // namespace onnxd
