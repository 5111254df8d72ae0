// What the platforms that run containers say in the environment.
#pragma once

#include <map>
#include <string>

#include "server/config/server_options.h"

namespace onnxd {

// Applies SageMaker's SAGEMAKER_BIND_TO_PORT (and its folder of the model, /opt/ml/model), Vertex
// AI's AIP_HTTP_PORT, AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE, and Azure ML's AZUREML_MODEL_DIR.
// Where one is set, all addresses are listened at. Errors as of the keys they stand for.
Status ApplyPlatform(const std::map<std::string, std::string>& variables, ServerOptions& options);

}  // namespace onnxd
