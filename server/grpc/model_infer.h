// One inference over gRPC: messages <-> InferenceService.
#pragma once

#include <functional>
#include <string>

#include "proto/open_inference.pb.h"
#include "server/grpc/grpc_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// The answer, which lives until the function returns, and the request's id as far as it was read.
using ModelInferDone =
    std::function<void(Result<inference::ModelInferResponse*>, const std::string& id)>;

// Computes the ModelInferRequest in `call.message`; `done` is called once.
void ModelInfer(InferenceService& service, const GrpcCall& call, ModelInferDone done);

// The PredictRequest in `call.message`; answers with a serialized PredictResponse.
void Predict(InferenceService& service, const GrpcCall& call, GrpcRespond respond);

}  // namespace onnxd
