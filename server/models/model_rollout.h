// ModelRollout: what a model's versions share while one takes the place of another.
#pragma once

#include "server/models/canary_analysis.h"
#include "server/models/shadow_target.h"

namespace onnxd {

// Any thread.
struct ModelRollout {
  explicit ModelRollout(CanaryAnalysis::OnVerdict on_verdict) : analysis(std::move(on_verdict)) {}

  CanaryAnalysis analysis;
  ShadowTarget shadow;
};

}  // namespace onnxd
