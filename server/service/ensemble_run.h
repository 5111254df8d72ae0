// RunEnsemble: one request of an ensemble.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "server/inference/inference_request.h"
#include "server/models/ensemble.h"

namespace onnxd {

// What one request of a model came to: the outputs that were asked for, in that order.
struct StepResult {
  Result<std::vector<Value>> outputs;
  std::chrono::nanoseconds queue_time{0}, compute_time{0};
};
using StepDone = std::function<void(StepResult)>;
// Has a step computed; must call `done` once, from any thread.
using RunStep = std::function<void(const Ensemble::Step& step, std::vector<NamedValue> inputs,
                                   std::vector<std::string> outputs, StepDone done)>;

// Runs each step as soon as what it takes is there, those that do not wait for each other at once.
// Tensors go from step to step as they are, and are let go with the last step that takes them.
// `done` gets the ensemble's outputs and the sums of its steps' times, or the first failure, with
// the step's number and model; once, when no step is under way any more. `inputs` as the signature
// has them.
void RunEnsemble(std::shared_ptr<const Ensemble> ensemble, std::vector<Value> inputs, RunStep run,
                 StepDone done);

}  // namespace onnxd
