// Ensemble: how the models of an ensemble hang together, found from its settings and from the
// models that serve.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/models/model_registry.h"

namespace onnxd {

struct Ensemble {
  using Operand = std::pair<std::string, size_t>;  // a model's input or output, and its tensor
  struct Step {
    std::string model, version;  // version as EnsembleStep has it
    std::vector<Operand> inputs, outputs;
  };
  std::vector<Step> steps;
  size_t tensors = 0;                   // numbered from 0
  std::vector<size_t> inputs, outputs;  // tensors, in the order of the ensemble's signature
};

// An ensemble that can serve, of models that do; it has no session. Its signature is what these
// models have where it begins and ends. kFailedPrecondition when a model does not serve, or is an
// ensemble that this one is part of; kInvalidArgument when a model has no such input or output, an
// input of a model gets nothing, or types do not fit.
Result<std::shared_ptr<ModelVersion>> MakeEnsemble(const std::string& model,
                                                   const std::string& version,
                                                   const ModelSettings& settings,
                                                   const ModelRegistry& registry);

// Whether a version of the ensemble needs the model, itself or through others.
bool NeedsModel(const ModelVersion& ensemble, const std::string& model,
                const ModelRegistry& registry);

// One that serves and needs the model; empty: none.
std::string EnsembleThatNeeds(const std::string& model, const ModelRegistry& registry);

}  // namespace onnxd
