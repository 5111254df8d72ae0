// The gRPC services: messages <-> InferenceService.
//
//   /inference.GRPCInferenceService/...     Open Inference Protocol v2 (open_inference.proto)
//   /onnxd.v1.PredictionService/Predict     our own (onnxd.proto)
//   /grpc.health.v1.Health/...              (health.proto)
//   /grpc.reflection.v1.ServerReflection/.. and v1alpha (reflection.proto)
#pragma once

#include "server/access/access_gate.h"
#include "server/grpc/grpc_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// Any thread. Must outlive every call it was handed.
class GrpcApi {
 public:
  GrpcApi(InferenceService& service, const AccessGate& gate) : service_(service), gate_(gate) {}

  // Of a call whose message has not been read: why it will not be.
  Status Check(const GrpcCall& call) const;
  // kUnimplemented for unknown services and methods.
  void Handle(GrpcCall call, GrpcRespond respond) const;
  // As GrpcIsStreaming and GrpcOpenStream.
  static bool IsStreaming(std::string_view path);
  Result<std::unique_ptr<GrpcStreamHandler>> OpenStream(const GrpcCall& call,
                                                        std::shared_ptr<GrpcWriter> writer) const;

 private:
  // Fills in what its key lets it do.
  Status Admit(GrpcCall& call) const;

  InferenceService& service_;
  const AccessGate& gate_;
};

}  // namespace onnxd
