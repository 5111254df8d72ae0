// Tensors of the gRPC messages <-> runtime tensors.
#pragma once

#include "proto/onnxd.pb.h"
#include "proto/open_inference.pb.h"
#include "server/inference/inference_request.h"
#include "server/inference/shared_memory_tensor.h"

namespace onnxd {

// Inputs of a ModelInferRequest, raw, typed or in shared memory. kInvalidArgument names the input.
Result<std::vector<NamedValue>> InputsOf(const inference::ModelInferRequest& request,
                                         const SharedMemory& memory);

// What a requested output's parameters ask for.
struct OutputForm {
  std::optional<int64_t> classification;
  std::optional<SharedMemoryRange> shared_memory;
};
// Of the requested outputs, in their order.
Result<std::vector<OutputForm>> OutputFormsOf(const inference::ModelInferRequest& request);

// One tensor of a PredictRequest; `type` is the model's, for requests without a datatype.
Result<Tensor> TensorOf(const v1::Tensor& message, DataType type);
Status ToMessage(const NamedValue& output, v1::Tensor& message);

}  // namespace onnxd
