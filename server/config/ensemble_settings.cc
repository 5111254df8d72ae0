#include "server/config/ensemble_settings.h"

#include <algorithm>
#include <set>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

std::set<std::string> MadeBy(const EnsembleSettings& ensemble) {
  std::set<std::string> made;
  for (const EnsembleStep& step : ensemble.steps) {
    for (const auto& [output, tensor] : step.outputs) made.insert(tensor);
  }
  return made;
}

Status CheckStep(const EnsembleStep& step, std::set<std::string>& made) {
  if (step.model.empty()) return InvalidArgument("it names no model");
  if (step.inputs.empty()) return InvalidArgument("it has no inputs");
  if (step.outputs.empty()) return InvalidArgument("it has no outputs");
  for (const auto& [output, tensor] : step.outputs) {
    if (made.insert(tensor).second) continue;
    return InvalidArgument(StrCat("tensor '", tensor, "' is made twice"));
  }
  return Status::Ok();
}

// Whether all steps can run, each after those that make its inputs.
bool HasOrder(const EnsembleSettings& ensemble) {
  const std::vector<std::string> inputs = InputsOf(ensemble);
  std::set<std::string> there(inputs.begin(), inputs.end());
  std::vector<const EnsembleStep*> waiting;
  for (const EnsembleStep& step : ensemble.steps) waiting.push_back(&step);
  for (;;) {
    const auto run = std::erase_if(waiting, [&](const EnsembleStep* step) {
      const bool ready = std::all_of(step->inputs.begin(), step->inputs.end(),
                                     [&](const auto& in) { return there.contains(in.second); });
      if (!ready) return false;
      for (const auto& [output, tensor] : step->outputs) there.insert(tensor);
      return true;
    });
    if (run == 0) return waiting.empty();
  }
}

void AddMap(std::string& out, const std::map<std::string, std::string>& map) {
  for (const auto& [key, value] : map) out += StrCat(key, "\n", value, "\n");
  out += '\n';
}

}  // namespace

Status CheckEnsemble(const EnsembleSettings& ensemble) {
  std::set<std::string> made;
  for (size_t i = 0; i < ensemble.steps.size(); ++i) {
    const Status status = CheckStep(ensemble.steps[i], made);
    if (!status.ok()) return status.WithContext(StrCat("ensemble: step ", i + 1));
  }
  if (!HasOrder(ensemble)) return InvalidArgument("ensemble: its steps wait for each other");
  for (const std::string& output : ensemble.outputs) {
    if (made.contains(output)) continue;
    return InvalidArgument(StrCat("ensemble: no step makes the output '", output, "'"));
  }
  return Status::Ok();
}

std::vector<std::string> InputsOf(const EnsembleSettings& ensemble) {
  std::set<std::string> known = MadeBy(ensemble);
  std::vector<std::string> inputs;
  for (const EnsembleStep& step : ensemble.steps) {
    for (const auto& [input, tensor] : step.inputs) {
      if (known.insert(tensor).second) inputs.push_back(tensor);
    }
  }
  return inputs;
}

std::vector<std::string> OutputsOf(const EnsembleSettings& ensemble) {
  if (!ensemble.outputs.empty()) return ensemble.outputs;
  std::set<std::string> taken;
  for (const EnsembleStep& step : ensemble.steps) {
    for (const auto& [input, tensor] : step.inputs) taken.insert(tensor);
  }
  std::vector<std::string> outputs;
  for (const EnsembleStep& step : ensemble.steps) {
    for (const auto& [output, tensor] : step.outputs) {
      if (!taken.contains(tensor)) outputs.push_back(tensor);
    }
  }
  return outputs;
}

std::string Describe(const EnsembleSettings& ensemble) {
  std::string out;
  for (const EnsembleStep& step : ensemble.steps) {
    out += StrCat(step.model, "\n", step.version, "\n");
    AddMap(out, step.inputs);
    AddMap(out, step.outputs);
  }
  return out + StrJoin(ensemble.outputs, "\n");
}

}  // namespace onnxd
