// GET /v2/models/stats: sums of requests and runs, in the form of Triton's statistics extension.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/models/model_version.h"

namespace onnxd {

// {"model_stats": [...]}. Every member of "inference_stats" is there: clients look at them unasked.
std::string ModelStatisticsJson(const std::vector<std::shared_ptr<const ModelVersion>>& versions);

}  // namespace onnxd
