// By when a request's answer must be ready.
#pragma once

#include <chrono>
#include <optional>

#include "server/config/model_settings.h"
#include "server/inference/inference_request.h"

namespace onnxd {

// As the client's patience or the model's settings have it, the earlier one, less the answer's way
// to the client: a twentieth of the time since the request came, 5 ms at most. nullopt: nobody
// waits in vain. `now`: when all of the request was there.
std::optional<std::chrono::steady_clock::time_point> RequestDeadline(
    const InferenceRequest& request, const BatchingOptions& settings,
    std::chrono::steady_clock::time_point now);

}  // namespace onnxd
