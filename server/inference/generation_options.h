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

// What is not said is as the model's files have it. Ranges: server/generation/sampling.h.
struct GenerationOptions {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_tokens;  // of an answer, 1 at least; not said: the context's rest
  std::optional<uint64_t> seed;
  std::map<int64_t, double> logit_bias;
  std::vector<std::string> stops;
  bool ignores_stop_tokens = false;
  bool skips_special_tokens = true;
  // The input is no text but a conversation: the JSON object that the model's chat template gets.
  bool is_chat = false;
  // Not empty: the tokens of the one prompt, whose text does not count then.
  std::vector<int64_t> prompt_tokens;
  // Gets the text of the one prompt's answer as it comes, piece by piece, each from any thread; may
  // be null.
  std::function<void(std::string text)> on_text;
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
  int64_t prompt_tokens = 0, generated_tokens = 0;
};

}  // namespace onnxd
