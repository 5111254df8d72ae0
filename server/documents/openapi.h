// GET /openapi.json: the REST API, with a path, a schema and an example for each model.
// Source: https://spec.openapis.org/oas/v3.0.3
#pragma once

#include <functional>
#include <string>

#include "server/service/inference_service.h"

namespace onnxd {

// Of the models that `shows` is true for. Examples are all zeros (empty texts), where they have at
// most 1,000 elements.
std::string OpenApiJson(const InferenceService& service,
                        const std::function<bool(const std::string&)>& shows);

}  // namespace onnxd
