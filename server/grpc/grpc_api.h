// The gRPC services: messages <-> InferenceService.
//
//   /inference.GRPCInferenceService/...     Open Inference Protocol v2, core set
//   (open_inference.proto) /onnxd.v1.PredictionService/Predict     our own (onnxd.proto)
//   /grpc.health.v1.Health/Check            (health.proto)
#pragma once

#include "server/access/access_gate.h"
#include "server/grpc/grpc_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// Any thread. Must outlive every call it was handed.
class GrpcApi {
 public:
  GrpcApi(InferenceService& service, const AccessGate& gate) : service_(service), gate_(gate) {}

  // kUnimplemented for unknown services and methods.
  void Handle(GrpcCall call, GrpcRespond respond) const;

 private:
  void ModelInfer(GrpcCall call, GrpcRespond respond) const;
  void Predict(GrpcCall call, GrpcRespond respond) const;

  InferenceService& service_;
  const AccessGate& gate_;
};

}  // namespace onnxd
