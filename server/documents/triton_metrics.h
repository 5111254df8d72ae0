// The metrics of Triton Inference Server by their names there, for dashboards that know no others.
// Source: https://github.com/triton-inference-server/server, docs/user_guide/metrics.md
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/models/model_version.h"

namespace onnxd {

// In Prometheus's text exposition format. Those of GPUs are missing: none is used.
std::string TritonMetrics(const std::vector<std::shared_ptr<const ModelVersion>>& versions);

}  // namespace onnxd
