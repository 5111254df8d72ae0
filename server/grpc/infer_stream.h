// ModelStreamInfer: requests of one stream, answered in their order.
#pragma once

#include <memory>

#include "server/grpc/grpc_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// A request that fails is answered with its error_message and the stream goes on; with
// GrpcCall::stream_error_as_status it ends the stream.
std::unique_ptr<GrpcStreamHandler> OpenInferStream(InferenceService& service, const GrpcCall& call,
                                                   std::shared_ptr<GrpcWriter> writer);

}  // namespace onnxd
