// What happens to a model between its file and its kernels.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "runtime/graph/model.h"
#include "runtime/session/inference_session.h"

namespace onnxd {

// The stages in order; each holds what those before it did.
enum class Stage {
  kLoaded,     // read, checked, types and shapes inferred
  kExpanded,   // nodes that no provider takes replaced by their function body
  kOptimized,  // the passes that hold for every provider
  kFinal       // the providers' own passes, nodes given to providers, copies between their devices:
               // what kernels are made for
};

std::optional<Stage> StageFromName(std::string_view name);  // "loaded", ..., "final"

// Takes a model as it was read to kLoaded. kInvalidArgument names the node or value at fault.
Status CheckModel(Model& model);

// What the session asks for where a provider computes it, else float32.
Precision EffectivePrecision(const SessionOptions& options);

// Takes a model from kLoaded to `last`, and shows the graph of kOptimized on the way there. Errors
// as InferenceSession::Load.
Status PrepareModel(Model& model, const SessionOptions& options, Stage last,
                    const std::function<void(const Graph&)>& when_optimized = nullptr);

}  // namespace onnxd
