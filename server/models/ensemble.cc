#include "server/models/ensemble.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/base/str_cat.h"
#include "server/models/declared_signature.h"

namespace onnxd {
namespace {

const TensorSignature* Find(const std::vector<TensorSignature>& signature,
                            const std::string& name) {
  const auto found = std::find_if(signature.begin(), signature.end(),
                                  [&](const TensorSignature& s) { return s.name == name; });
  return found == signature.end() ? nullptr : &*found;
}

std::string Names(const std::vector<TensorSignature>& signature) {
  std::vector<std::string> names;
  for (const TensorSignature& s : signature) names.push_back(s.name);
  return StrJoin(names, ", ");
}

// What a value must be that is of both types; nothing where none can be.
std::optional<ValueType> Both(const ValueType& a, const ValueType& b) {
  if (a.kind != b.kind || a.element != b.element) return std::nullopt;
  if (!a.is_tensor() || !b.shape) return a;
  if (!a.shape) return b;
  if (a.shape->size() != b.shape->size()) return std::nullopt;
  ValueType both = a;
  for (size_t i = 0; i < a.shape->size(); ++i) {
    const Dimension &left = (*a.shape)[i], &right = (*b.shape)[i];
    if (left.known() && right.known() && left.value != right.value) return std::nullopt;
    if (!left.known()) (*both.shape)[i] = right.known() || left.symbol.empty() ? right : left;
  }
  return both;
}

class EnsembleMaker {
 public:
  EnsembleMaker(const std::string& name, const EnsembleSettings& settings,
                const ModelRegistry& registry)
      : name_(name), settings_(settings), registry_(registry) {}

  Result<std::shared_ptr<ModelVersion>> Make() {
    for (size_t i = 0; i < settings_.steps.size(); ++i) {
      const Status status = AddStep(settings_.steps[i]);
      if (!status.ok()) return status.WithContext(StrCat("ensemble: step ", i + 1));
    }
    const auto version = std::make_shared<ModelVersion>();
    for (const std::string& tensor : InputsOf(settings_)) {
      ensemble_.inputs.push_back(NumberOf(tensor));
      version->inputs.push_back({tensor, types_.at(tensor)});
    }
    for (const std::string& tensor : OutputsOf(settings_)) {
      ensemble_.outputs.push_back(NumberOf(tensor));
      version->outputs.push_back({tensor, types_.at(tensor)});
    }
    ensemble_.tensors = numbers_.size();
    version->ensemble = std::make_shared<Ensemble>(std::move(ensemble_));
    return version;
  }

 private:
  Status AddStep(const EnsembleStep& step) {
    const auto member = registry_.Find(step.model, step.version);
    if (!member.ok()) return FailedPrecondition(std::string(member.status().message()));
    if (step.model == name_ || NeedsModel(**member, name_, registry_)) {
      return FailedPrecondition(
          StrCat("model '", step.model, "' is, or needs, this ensemble itself"));
    }
    ensemble_.steps.push_back({step.model, step.version, {}, {}});
    Ensemble::Step& made = ensemble_.steps.back();
    const auto of = [&](const std::string& message) {
      return InvalidArgument(StrCat("model '", step.model, "' ", message));
    };
    for (const auto& [input, tensor] : step.inputs) {
      const TensorSignature* signature = Find((*member)->inputs, input);
      if (signature == nullptr) {
        return of(StrCat("has no input '", input, "'; it takes: ", Names((*member)->inputs)));
      }
      made.inputs.emplace_back(input, NumberOf(tensor));
      ONNXD_RETURN_IF_ERROR(Meet(tensor, signature->type, StrCat("input '", input, "'")));
    }
    for (const TensorSignature& signature : (*member)->inputs) {
      if (!step.inputs.contains(signature.name)) {
        return of(StrCat("also needs input '", signature.name, "'"));
      }
    }
    for (const auto& [output, tensor] : step.outputs) {
      const TensorSignature* signature = Find((*member)->outputs, output);
      if (signature == nullptr) {
        return of(StrCat("has no output '", output, "'; it gives: ", Names((*member)->outputs)));
      }
      made.outputs.emplace_back(output, NumberOf(tensor));
      ONNXD_RETURN_IF_ERROR(Meet(tensor, signature->type, StrCat("output '", output, "'")));
    }
    return Status::Ok();
  }

  size_t NumberOf(const std::string& tensor) {
    return numbers_.emplace(tensor, numbers_.size()).first->second;
  }

  Status Meet(const std::string& tensor, const ValueType& type, const std::string& end) {
    const auto [known, is_new] = types_.emplace(tensor, type);
    if (is_new) return Status::Ok();
    auto both = Both(known->second, type);
    if (!both) {
      return InvalidArgument(StrCat(end, " is ", ToString(type), ", but tensor '", tensor,
                                    "' is elsewhere ", ToString(known->second)));
    }
    known->second = *std::move(both);
    return Status::Ok();
  }

  const std::string& name_;
  const EnsembleSettings& settings_;
  const ModelRegistry& registry_;
  Ensemble ensemble_;
  std::map<std::string, size_t> numbers_;
  std::map<std::string, ValueType> types_;
};

void AddNeeded(const ModelVersion& version, const ModelRegistry::Models& models,
               std::set<std::string>& needed) {
  if (version.ensemble == nullptr) return;
  for (const Ensemble::Step& step : version.ensemble->steps) {
    if (!needed.insert(step.model).second) continue;
    const auto found = models.find(step.model);
    if (found == models.end()) continue;
    for (const auto& [number, member] : found->second) AddNeeded(*member, models, needed);
  }
}

}  // namespace

bool NeedsModel(const ModelVersion& ensemble, const std::string& model,
                const ModelRegistry& registry) {
  std::set<std::string> needed;
  AddNeeded(ensemble, *registry.Snapshot(), needed);
  return needed.contains(model);
}

std::string EnsembleThatNeeds(const std::string& model, const ModelRegistry& registry) {
  const auto models = registry.Snapshot();
  for (const auto& [name, versions] : *models) {
    for (const auto& [number, version] : versions) {
      if (version->ensemble == nullptr) continue;
      for (const Ensemble::Step& step : version->ensemble->steps) {
        if (step.model == model) return name;
      }
    }
  }
  return "";
}

Result<std::shared_ptr<ModelVersion>> MakeEnsemble(const std::string& model,
                                                   const std::string& version,
                                                   const ModelSettings& settings,
                                                   const ModelRegistry& registry) {
  ONNXD_ASSIGN_OR_RETURN(auto made, EnsembleMaker(model, settings.ensemble, registry).Make());
  ONNXD_RETURN_IF_ERROR(CheckDeclared(settings.declared, made->inputs, made->outputs));
  made->model = model;
  made->version = version;
  made->settings = settings;
  return made;
}

}  // namespace onnxd
