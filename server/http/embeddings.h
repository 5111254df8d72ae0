// OpenAI's embeddings API, which clients of many libraries speak.
//
//   POST /v1/embeddings {"model": "minilm", "input": ["What a day!", "Never again."]}
//     -> {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.1, ...]},
//     ...],
//         "model": "minilm", "usage": {"prompt_tokens": 10, "total_tokens": 10}}
//
// Of a model with one input of texts and an output of a vector for each: `embedding`, or
// `sentence_embedding`, or the only one of [batch, size]. "encoding_format": "base64" gives little-
// endian floats. Errors are {"error": {"message": ..., "type": "invalid_request_error"}}. Usage is there where the server made the tokens and the answer is not a kept one.
// Source: https://platform.openai.com/docs/api-reference/embeddings
#pragma once

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

void HandleEmbeddings(InferenceService& service, HttpRequest request, HttpRespond respond);

}  // namespace onnxd
