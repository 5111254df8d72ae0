// One inference over gRPC: messages <-> InferenceService.
#pragma once

#include <functional>
#include <string>

#include "server/grpc/grpc_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// A serialized inference.ModelInferResponse, and the request's id as far as it was read.
using ModelInferDone = std::function<void(Result<std::string>, const std::string& id)>;

// Another serialized inference.ModelInferResponse, before the last.
using ModelInferPart = std::function<void(std::string)>;

// Computes the ModelInferRequest in `call.message`; `done` is called once. What a model writes goes
// to `part` piece by piece, where it is not null, and nothing of it is left for `done`.
void ModelInfer(InferenceService& service, const GrpcCall& call, ModelInferDone done,
                ModelInferPart part = nullptr);

// The PredictRequest in `call.message`; answers with a serialized PredictResponse.
void Predict(InferenceService& service, const GrpcCall& call, GrpcRespond respond);

}  // namespace onnxd
