// What the Open Inference Protocol and Triton's extensions of it say of a request, besides its
// tensors.
#pragma once

#include <string>
#include <string_view>

#include "server/http/json_document.h"
#include "server/inference/inference_request.h"

namespace onnxd {

// "id": kInvalidArgument where it is no text, or longer than 256 bytes.
Result<std::string> ReadRequestId(JsonValue value);

// timeout, priority, sequence_id, sequence_start and sequence_end, for a model that `writes_texts`
// those of generation (server/http/generation_parameters.h), too; others have no meaning.
// kInvalidArgument names the parameter, or says that one is nested deeper than `max_depth`.
Status ReadInferParameter(std::string_view key, JsonValue value, int64_t max_depth,
                          bool writes_texts, InferenceRequest& request);

}  // namespace onnxd
