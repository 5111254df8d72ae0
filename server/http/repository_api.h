// The model repository extension of the Open Inference Protocol: what is there, load, unload.
// Source: Triton's extension_model_repository.
#pragma once

#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// Whether path segments that begin with "v2" belong to this extension.
bool IsRepositoryPath(const std::vector<std::string>& path);

// POST v2/repository/index (body {"ready": true}: only what serves) and
// v2/repository/models/NAME/load and /unload, whose parameters are refused: 400.
void HandleRepository(InferenceService& service, const std::vector<std::string>& path,
                      HttpRequest request, HttpRespond respond);

}  // namespace onnxd
