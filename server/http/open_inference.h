// The Open Inference Protocol v2 over REST, with Triton's extensions binary tensor data and
// generate. Source: https://github.com/kserve/open-inference-protocol and Triton's
// extension_binary_data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/config/server_options.h"
#include "server/http/http_message.h"
#include "server/service/inference_service.h"

namespace onnxd {

struct OpenInferenceRoute {
  enum class Verb {
    kServerMetadata,
    kModelMetadata,
    kModelConfig,
    kModelReady,
    kStatistics,
    kInfer,
    kGenerate,
    kGenerateStream
  };
  Verb verb;
  std::string model, version;

  // Whether it asks for a prediction.
  bool predicts() const {
    return verb == Verb::kInfer || verb == Verb::kGenerate || verb == Verb::kGenerateStream;
  }
};

// The route of path segments that begin with "v2"; nullopt for unknown paths.
std::optional<OpenInferenceRoute> OpenInferenceRouteOf(const std::vector<std::string>& path);

void HandleOpenInference(InferenceService& service, const OpenInferenceRoute& route,
                         HttpRequest request, HttpRespond respond);

}  // namespace onnxd
