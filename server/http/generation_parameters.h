// What requests in JSON say of the text that a model writes: the names of OpenAI's API, of vLLM's
// additions to it, and of Triton's backends for language models.
#pragma once

#include <string_view>

#include "server/http/json_document.h"
#include "server/inference/generation_options.h"

namespace onnxd {

// max_tokens (max_completion_tokens, max_new_tokens), temperature, top_p, top_k, min_p, seed,
// repetition_penalty, presence_penalty, frequency_penalty, logit_bias, stop, ignore_eos,
// skip_special_tokens; null: as if it were not there. False: the key is none of them, and the value
// was not read. kInvalidArgument names the key; ranges are checked later.
Result<bool> ReadGenerationParameter(std::string_view key, JsonValue value,
                                     GenerationOptions& options);

}  // namespace onnxd
