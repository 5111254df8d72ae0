// ModelInferResponse and ModelStreamInferResponse as bytes, written without messages between: an
// output is copied once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/grpc/tensor_messages.h"
#include "server/inference/inference_request.h"
#include "server/inference/json_writer.h"
#include "server/inference/shared_memory.h"

namespace onnxd {

// An inference.ModelInferResponse. Outputs are raw contents, which is what clients read, or in
// shared memory where their form says so; those beyond `forms` are raw. Values that are no tensors
// are one BYTES element, their JSON. kUnimplemented for those without a datatype in the protocol,
// kResourceExhausted for more bytes than a message may have (2^31 - 1).
Result<std::string> WriteInferResponse(const InferenceResponse& result,
                                       const std::vector<OutputForm>& forms,
                                       const SharedMemory& memory, NonFiniteNumbers& non_finite);

// An inference.ModelStreamInferResponse with such an answer, the only one to its request; or with
// why there is none, and the request's id.
std::string WriteStreamAnswer(std::string_view response);
// One with such an answer, behind which others come.
std::string WriteStreamPart(std::string_view response);
std::string WriteStreamError(std::string_view message, std::string_view id);

}  // namespace onnxd
