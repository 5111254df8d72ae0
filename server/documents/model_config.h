// A model's configuration as GET /v2/models/{model}/config answers it, in the form of Triton's
// ModelConfig:
// https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
#pragma once

#include <string>

#include "server/service/inference_service.h"

namespace onnxd {

// JSON. Where requests run alone, the parameter "requests_run_alone" says why. As in Triton,
// dimensions leave out the batch, unless max_batch_size is 0: then the model has none.
std::string ModelConfigJson(const ModelVersion& version, const BatchSettings& batching);

}  // namespace onnxd
