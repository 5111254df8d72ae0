// ModelVersion: a loaded model under a name and a version. A request that found one holds it, so it
// stays until its last request has finished.
#pragma once

#include <memory>
#include <string>

#include "runtime/session/inference_session.h"
#include "server/metrics/server_metrics.h"

namespace onnxd {

// Immutable; any thread.
struct ModelVersion {
  std::string model;
  std::string version;
  std::unique_ptr<InferenceSession> session;
  ModelMetrics* metrics;  // outlives the version
};

}  // namespace onnxd
