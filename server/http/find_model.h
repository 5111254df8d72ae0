// The model that a request's body or path names, where its key may ask it.
#pragma once

#include <memory>
#include <string>

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// `name` and `version` as InferenceService::FindModel has them; errors as there, of several models
// naming those that the key knows, and kPermissionDenied.
Result<std::shared_ptr<const ModelVersion>> FindGrantedModel(const InferenceService& service,
                                                             const Grant& grant,
                                                             const std::string& name,
                                                             const std::string& version,
                                                             uint64_t point);

}  // namespace onnxd
