// One inference over gRPC: messages <-> InferenceService.
#pragma once

#include <functional>
#include <string>

#include "proto/open_inference.pb.h"
#include "server/grpc/grpc_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// Computes the ModelInferRequest in `call.message`; `done` is called once, with the request's id as
// far as it could be read.
void ModelInfer(
    InferenceService& service, const GrpcCall& call,
    std::function<void(Result<inference::ModelInferResponse>, const std::string& id)> done);

// The PredictRequest in `call.message`; answers with a serialized PredictResponse.
void Predict(InferenceService& service, const GrpcCall& call, GrpcRespond respond);

}  // namespace onnxd
