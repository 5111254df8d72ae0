// EnsembleSettings: a model that is made of others: the section `ensemble` of NAME/model.yaml. As
// Triton's ensemble_scheduling.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

struct EnsembleStep {
  std::string model;
  std::string version;                         // number or label; empty: as of who names none
  std::map<std::string, std::string> inputs;   // of the model: the tensor that each gets
  std::map<std::string, std::string> outputs;  // of the model: the tensor that each becomes
  bool operator==(const EnsembleStep&) const = default;
};

struct EnsembleSettings {
  std::vector<EnsembleStep> steps;   // in any order; none: it is no ensemble
  std::vector<std::string> outputs;  // tensors; empty: those that no step takes, in order of steps
  bool active() const { return !steps.empty(); }
  bool operator==(const EnsembleSettings&) const = default;
};

// kInvalidArgument: a step without model, inputs or outputs, a tensor that two steps make, one that
// needs itself, an output that nobody makes, or no output.
Status CheckEnsemble(const EnsembleSettings& ensemble);

// Tensors that no step makes, in order of steps: the ensemble's inputs.
std::vector<std::string> InputsOf(const EnsembleSettings& ensemble);
std::vector<std::string> OutputsOf(const EnsembleSettings& ensemble);

// Of equal ensembles equal.
std::string Describe(const EnsembleSettings& ensemble);

}  // namespace onnxd
