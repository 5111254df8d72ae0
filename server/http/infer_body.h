// The body of POST /v2/models/{model}/infer: JSON, with tensors in it, behind it as bytes (Triton's
// binary tensor data extension) or in shared memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/inference/inference_request.h"
#include "server/inference/shared_memory_tensor.h"
#include "server/service/inference_service.h"

namespace onnxd {

inline constexpr const char* kHeaderLength = "Inference-Header-Content-Length";

// What the parameters of an input or output say of where it is.
struct ValuePlacement {
  std::optional<uint64_t> binary_data_size;
  std::optional<bool> binary_data;
  std::optional<SharedMemoryRange> shared_memory;
  std::optional<int64_t> classification;
};

struct OutputRequest {
  std::string name;
  ValuePlacement placement;
};

struct InferBody {
  InferenceRequest request;
  std::vector<OutputRequest> outputs;
  bool binary_default = false;  // outputs that do not say are wanted as bytes
};

// Tensors may lie in the request's body, which they keep. kInvalidArgument names the input and what
// is wrong with it; kUnimplemented for sequences of requests.
Result<InferBody> ReadInferBody(const ModelVersion& version, const InferenceService::Json& json,
                                const SharedMemory& memory, const HttpRequest& request);

}  // namespace onnxd
