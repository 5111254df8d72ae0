// GenerationOptions: what a request says of the text that a model writes for it, whatever its
// protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct LikelyToken {
  std::string bytes;         // of its text; need not be whole characters
  float log_probability{0};  // natural; NaN: of the first token, before which there is nothing
};

// A token of a text, and which were the likeliest in its place, the likeliest first; all before
// penalties and temperature.
struct ScoredToken {
  LikelyToken token;
  std::vector<LikelyToken> likeliest;
};

// Of one answer of a request.
struct TextPiece {
  size_t answer = 0;
  std::string text;
  std::vector<ScoredToken> tokens;  // where they were asked for: of the text, but for what ends it
  // Nothing comes behind it, because all tokens that there may be were written (kLength).
  enum class End { kNot, kStop, kLength } end = End::kNot;
};

constexpr int64_t kMostLikeliest = 20;

// What is not said is as the model's files have it. Ranges: server/generation/sampling.h.
struct GenerationOptions {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_tokens;  // of an answer; not said: the context's rest
  std::optional<uint64_t> seed;
  std::map<int64_t, double> logit_bias;
  std::vector<std::string> stops;
  bool ignores_stop_tokens = false;
  bool skips_special_tokens = true;
  // The input is no text but a conversation: the JSON object that the model's chat template gets.
  bool is_chat = false;
  // Not empty: the tokens of each prompt, whose text does not count then.
  std::vector<std::vector<int64_t>> prompt_tokens;
  // How many of the likeliest tokens come with each that is written, kMostLikeliest at most; not
  // said: the answer has no tokens.
  std::optional<int64_t> likeliest;
  bool echoes_prompt = false;  // answers begin with its text and, where they have them, tokens
  // Gets the answers as they come, piece by piece, one after another, from any thread; the response
  // is without them then. May be null.
  std::function<void(TextPiece piece)> on_text;
};

// The option of a parameter's name, as OpenAI's API, vLLM and Triton's backends have them: of a
// number, a whole number, a truth value. Null: it is none of these.
std::optional<double>* NumberOption(GenerationOptions& options, std::string_view name);
std::optional<int64_t>* CountOption(GenerationOptions& options, std::string_view name);
bool* SwitchOption(GenerationOptions& options, std::string_view name);
// kInvalidArgument: it is empty or too long, or there are too many.
Status AddStop(std::string_view text, GenerationOptions& options);

// Of all texts of a request.
struct GeneratedTexts {
  std::vector<bool> cut;  // of each, whether it has all its tokens, and no end
  std::vector<std::vector<ScoredToken>> tokens;  // of each
  int64_t prompt_tokens = 0, generated_tokens = 0;
};

}  // namespace onnxd
