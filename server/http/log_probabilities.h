// How likely tokens were, as OpenAI's API writes it: "logprobs".
//
//   of texts          {"tokens": [" a"], "token_logprobs": [-0.1], "top_logprobs": [{" a": -0.1}],
//                     "text_offset": [0]}: characters from the begin of the answer on
//   of conversations  {"content": [{"token": " a", "logprob": -0.1, "bytes": [32, 97],
//                     "top_logprobs": [...]}], "refusal": null}
//
// Tokens that are not whole characters are written as bytes:\xe2\x80.
// Source: https://platform.openai.com/docs/api-reference/completions/object and .../chat/object
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "server/http/completions.h"
#include "server/inference/generation_options.h"

namespace onnxd {

// Of the tokens of one answer, or of its next ones: `offset` characters are before them, and grow.
std::string LogProbabilities(CompletionForm form, std::span<const ScoredToken> tokens,
                             size_t& offset);

}  // namespace onnxd
