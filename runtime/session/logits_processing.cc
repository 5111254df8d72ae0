#include "runtime/session/logits_processing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace onnxd {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

void PenalizeRepetition(float penalty, std::span<const int32_t> tokens, std::span<float> scores) {
  const std::set<int32_t> seen(tokens.begin(), tokens.end());
  for (const int32_t token : seen) {
    if (token < 0 || token >= static_cast<int64_t>(scores.size())) continue;
    float& score = scores[static_cast<size_t>(token)];
    score = score < 0 ? score * penalty : score / penalty;
  }
}

// Tokens that would repeat `size` tokens in a row.
void ForbidRepeatedRuns(int64_t size, std::span<const int32_t> tokens, std::span<float> scores) {
  const auto length = static_cast<int64_t>(tokens.size());
  if (length < size) return;
  const auto prefix = tokens.subspan(static_cast<size_t>(length - size + 1));
  for (int64_t at = 0; at + size <= length; ++at) {
    const auto run = tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(size));
    if (!std::equal(prefix.begin(), prefix.end(), run.begin())) continue;
    const int32_t next = run.back();
    if (next >= 0 && next < static_cast<int64_t>(scores.size())) {
      scores[static_cast<size_t>(next)] = kLowest;
    }
  }
}

void Forbid(std::span<const int32_t> allowed, std::span<float> scores) {
  for (size_t i = 0; i < scores.size() && i < allowed.size(); ++i) {
    if (allowed[i] == 0) scores[i] = kLowest;
  }
}

std::span<const int32_t> RowOf(const std::vector<int32_t>& mask, int64_t row, size_t width) {
  const size_t begin = static_cast<size_t>(row) * width;
  if (begin + width > mask.size()) return {};
  return std::span(mask).subspan(begin, width);
}

}  // namespace

void ProcessLogits(const LogitsRules& rules, std::span<const int32_t> tokens, int64_t batch,
                   bool first_step, std::span<float> scores) {
  if (rules.repetition_penalty != 1) PenalizeRepetition(rules.repetition_penalty, tokens, scores);
  if (rules.no_repeat_ngram_size > 0) {
    ForbidRepeatedRuns(rules.no_repeat_ngram_size, tokens, scores);
  }
  Forbid(rules.vocabulary_mask, scores);
  if (first_step) Forbid(RowOf(rules.prefix_mask, batch, scores.size()), scores);
  const auto eos = static_cast<size_t>(rules.eos_token);
  if (static_cast<int64_t>(tokens.size()) < rules.min_length && eos < scores.size()) {
    scores[eos] = kLowest;
  }
  if (rules.temperature != 1 && rules.temperature > 0) {
    for (float& score : scores) score /= rules.temperature;
  }
  const auto present = RowOf(rules.presence_mask, batch, scores.size());
  for (size_t i = 0; rules.presence_penalty != 0 && i < present.size(); ++i) {
    scores[i] -= static_cast<float>(present[i]) * rules.presence_penalty;
  }
}

void LogSoftmax(std::span<float> row) {
  const float largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x - largest));
  const float shift = largest + static_cast<float>(std::log(sum));
  for (float& x : row) x -= shift;
}

}  // namespace onnxd
