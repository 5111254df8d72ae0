// REST paths of the protocol's extensions that concern no inference: logging, tracing, shared
// memory. Source: https://github.com/triton-inference-server/server/tree/main/docs/protocol
#pragma once

#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

// v2/logging; v2/trace/setting and v2/models/{name}[/versions/{version}]/trace/setting;
// v2/systemsharedmemory and v2/cudasharedmemory with [/region/{name}]/{verb}.
bool IsExtensionPath(const std::vector<std::string>& path);

// GET or POST, else 405.
HttpResponse HandleExtension(InferenceService& service, const std::vector<std::string>& path,
                             const HttpRequest& request);

}  // namespace onnxd
