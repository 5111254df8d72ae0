// Tensors of the gRPC messages <-> runtime tensors.
#pragma once

#include "proto/onnxd.pb.h"
#include "proto/open_inference.pb.h"
#include "server/inference/inference_request.h"

namespace onnxd {

// Inputs of a ModelInferRequest, raw or typed. kInvalidArgument names the input.
Result<std::vector<NamedValue>> InputsOf(const inference::ModelInferRequest& request);

// Adds outputs, always as raw contents: what clients read. kUnimplemented for values that are no
// tensors or have no datatype in the protocol.
Status AddOutputs(const std::vector<NamedValue>& outputs, inference::ModelInferResponse& response);

// One tensor of a PredictRequest; `type` is the model's, for requests without a datatype.
Result<Tensor> TensorOf(const v1::Tensor& message, DataType type);
Status ToMessage(const NamedValue& output, v1::Tensor& message);

}  // namespace onnxd
