// What com.microsoft's generation operators change in scores before they choose tokens. Source:
// onnxruntime's ContribOperators document; the penalties are those of transformers' generate().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace onnxd {

struct LogitsRules {
  float repetition_penalty = 1;
  int64_t no_repeat_ngram_size = 0;
  int64_t min_length = 0;
  int64_t eos_token = 0;
  float temperature = 1;
  float presence_penalty = 0;
  std::vector<int32_t> vocabulary_mask;  // [vocabulary], empty: none
  std::vector<int32_t> prefix_mask;      // [batch, vocabulary], for the first step
  std::vector<int32_t> presence_mask;    // [batch, vocabulary]
};

// Changes one row's scores in place. `tokens`: the row's sequence so far; `batch`: its entry.
void ProcessLogits(const LogitsRules& rules, std::span<const int32_t> tokens, int64_t batch,
                   bool first_step, std::span<float> scores);

// In place: x - log(sum(exp(x))).
void LogSoftmax(std::span<float> row);

}  // namespace onnxd
