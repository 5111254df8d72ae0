// POST /predict: the forgiving interface.
//
//   {"input": [[5.1, 3.5, 1.4, 0.2]]}                 a model with one input
//   {"inputs": {"ids": [[1, 2]], "mask": [[1, 1]]}}   several; "model" and "version" are optional
//   -> {"prediction": ..., "inference_time_ms": 0.01, "model": "iris", "model_version": "1"}
//   -> {"predictions": {"label": [0], "probabilities": [[...]]}, ...}   several outputs
#pragma once

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// `model` comes from the path; empty: from the body or the default.
void HandlePredict(InferenceService& service, const std::string& model, HttpRequest request,
                   HttpRespond respond);

}  // namespace onnxd
