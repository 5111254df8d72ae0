// grpc.health.v1.Health: Check, and Watch as a stream.
// Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md
#pragma once

#include <memory>

#include "proto/health.pb.h"
#include "server/grpc/grpc_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// kNotFound for services that are not served here.
Result<grpc::health::v1::HealthCheckResponse> CheckHealth(
    const InferenceService& service, const grpc::health::v1::HealthCheckRequest& request);

// Changes are told within about a second; services that are not served here are SERVICE_UNKNOWN.
std::unique_ptr<GrpcStreamHandler> OpenHealthWatch(const InferenceService& service,
                                                   std::shared_ptr<GrpcWriter> writer);

}  // namespace onnxd
