// OpenAI's API for models that write texts, as its clients speak it.
//
//   POST /v1/completions        {"model": "gpt2", "prompt": "Once", "max_tokens": 8}
//                               -> {"object": "text_completion", "choices": [{"text": ...}], ...}
//   POST /v1/chat/completions   {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
//                               -> {"object": "chat.completion", "choices": [{"message": ...}],
//                               ...}
//
// With "stream": true the text comes as server-sent events, piece by piece, the last one [DONE].
// Source: https://platform.openai.com/docs/api-reference/completions and .../chat
#pragma once

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

enum class CompletionForm { kText, kChat };

// Prompts are texts, or arrays of tokens; conversations are written by the model's chat template.
// Errors have the form of that API; what it knows and is not there is refused by its name.
void HandleCompletions(InferenceService& service, CompletionForm form, HttpRequest request,
                       HttpRespond respond);

}  // namespace onnxd
