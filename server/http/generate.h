// Triton's generate extension: an object whose keys are inputs, answered by one whose keys are
// outputs, as programs that talk to language models write them.
//
//   POST /v2/models/{model}[/versions/{version}]/generate
//        {"text_input": "What is ONNX?", "parameters": {"max_tokens": 20}}
//        -> {"model_name": "chat", "model_version": "1", "text_output": "..."}
//   POST /v2/models/{model}[/versions/{version}]/generate_stream
//        -> the same object as server-sent events: of a model that writes texts one for each piece
//           of it, as it comes; of others one
//
// A value, or a flat array of them, takes the shape that its input declares: what dimensions of a
// known length leave over belongs to the last free one, and other free ones are 1. Keys that name
// no input are the request's parameters, as those in "parameters" are. Of an output, one element is
// a value, and several are a flat array.
// Source: https://github.com/triton-inference-server/server, docs/protocol/extension_generate.md
#pragma once

#include <string>

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

enum class GenerateForm { kWhole, kStream };

// `version` empty: the one that is meant when none is named.
void HandleGenerate(InferenceService& service, const std::string& model, const std::string& version,
                    GenerateForm form, HttpRequest request, HttpRespond respond);

}  // namespace onnxd
