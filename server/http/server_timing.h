// Where an answer's time went, for the client.
// Source: https://www.w3.org/TR/server-timing/
#pragma once

#include "server/http/http_message.h"
#include "server/inference/inference_request.h"

namespace onnxd {

// Header Server-Timing: queue, waiting for an executor, and compute, the model's run; milliseconds.
void AddServerTiming(const InferenceResponse& result, HttpResponse& response);

}  // namespace onnxd
