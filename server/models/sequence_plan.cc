#include "server/models/sequence_plan.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

using Role = SequencePlan::Role;

Result<size_t> Find(const std::vector<TensorSignature>& signature, const std::string& name,
                    const char* kind) {
  const auto found = std::find_if(signature.begin(), signature.end(),
                                  [&](const TensorSignature& s) { return s.name == name; });
  if (found != signature.end()) return static_cast<size_t>(found - signature.begin());
  return InvalidArgument(StrCat("sequence: the model has no ", kind, " '", name, "'"));
}

bool TakesIds(DataType type) {
  return type == DataType::kString || (IsConvertible(type) && !IsFloatingPoint(type));
}

class PlanMaker {
 public:
  PlanMaker(const SequenceSettings& settings, const std::vector<TensorSignature>& inputs,
            const std::vector<TensorSignature>& outputs)
      : settings_(settings), inputs_(inputs), outputs_(outputs) {
    plan_->signature = inputs;
    plan_->inputs.assign(inputs.size(), {Role::kClient, 0});
  }

  Result<std::shared_ptr<const SequencePlan>> Make() {
    for (const SequenceState& state : settings_.states) ONNXD_RETURN_IF_ERROR(AddState(state));
    ONNXD_RETURN_IF_ERROR(AddControl(settings_.start_input, Role::kStart));
    ONNXD_RETURN_IF_ERROR(AddControl(settings_.end_input, Role::kEnd));
    ONNXD_RETURN_IF_ERROR(AddControl(settings_.ready_input, Role::kReady));
    ONNXD_RETURN_IF_ERROR(AddControl(settings_.id_input, Role::kId));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (plan_->inputs[i].role != Role::kClient) continue;
      plan_->inputs[i].index = plan_->client_inputs.size();
      plan_->client_inputs.push_back(i);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto is_it = [i](const SequencePlan::State& state) { return state.output == i; };
      if (std::none_of(plan_->states.begin(), plan_->states.end(), is_it)) {
        plan_->client_outputs.push_back(i);
      }
    }
    return std::shared_ptr<const SequencePlan>(plan_);
  }

 private:
  Status AddState(const SequenceState& state) {
    ONNXD_ASSIGN_OR_RETURN(const size_t input, Find(inputs_, state.input, "input"));
    ONNXD_ASSIGN_OR_RETURN(const size_t output, Find(outputs_, state.output, "output"));
    const ValueType &in = inputs_[input].type, &out = outputs_[output].type;
    if (!in.is_tensor() || in.element != out.element || in.element == DataType::kString) {
      return InvalidArgument(StrCat("sequence: output '", state.output, "' of type ", ToString(out),
                                    " cannot be the state of input '", state.input, "' of type ",
                                    ToString(in)));
    }
    SymbolicShape shape;
    if (!state.shape.empty()) {
      for (const int64_t size : state.shape) shape.emplace_back(size);
    } else if (in.shape) {
      shape = *in.shape;
    } else {
      return InvalidArgument(
          StrCat("sequence: the state of input '", state.input, "' needs a shape"));
    }
    plan_->inputs[input] = {Role::kState, plan_->states.size()};
    plan_->states.push_back({input, output, std::move(shape)});
    return Status::Ok();
  }

  Status AddControl(const std::string& name, Role role) {
    if (name.empty()) return Status::Ok();
    ONNXD_ASSIGN_OR_RETURN(const size_t input, Find(inputs_, name, "input"));
    const ValueType& type = inputs_[input].type;
    const bool fits = type.is_tensor() && type.shape &&
                      (role == Role::kId ? TakesIds(type.element) : IsConvertible(type.element));
    if (!fits) {
      return InvalidArgument(StrCat("sequence: input '", name, "' of type ", ToString(type),
                                    " cannot be set by the server"));
    }
    plan_->inputs[input].role = role;
    return Status::Ok();
  }

  const SequenceSettings& settings_;
  const std::vector<TensorSignature>&inputs_, &outputs_;
  const std::shared_ptr<SequencePlan> plan_ = std::make_shared<SequencePlan>();
};

Result<Tensor> IdTensor(const TensorSignature& signature, const Shape& shape,
                        const SequenceControl::Id& id) {
  const DataType type = signature.type.element;
  if ((type == DataType::kString) != !id.text.empty()) {
    return InvalidArgument(StrCat("input '", signature.name, "' takes the sequence_id as ",
                                  type == DataType::kString ? "a text" : "a number"));
  }
  if (type == DataType::kString) {
    ONNXD_ASSIGN_OR_RETURN(Tensor text, Tensor::Create(type, shape));
    std::fill_n(text.mutable_data<std::string>(), text.ElementCount(), id.text);
    return text;
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor numbers, Tensor::Create(DataType::kUint64, shape));
  std::fill_n(numbers.mutable_data<uint64_t>(), numbers.ElementCount(), id.number);
  return Converted(numbers, type);
}

}  // namespace

Result<std::shared_ptr<const SequencePlan>> MakeSequencePlan(
    const SequenceSettings& settings, const std::vector<TensorSignature>& inputs,
    const std::vector<TensorSignature>& outputs) {
  return PlanMaker(settings, inputs, outputs).Make();
}

Result<std::vector<Value>> InputsOfTurn(const SequencePlan& plan, std::vector<Value> client,
                                        std::span<const Value> states,
                                        const SequenceControl& control) {
  std::vector<Value> inputs(plan.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto [role, index] = plan.inputs[i];
    if (role == Role::kClient) inputs[i] = std::move(client[index]);
  }
  const auto symbols = SymbolsOf(plan.signature, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSignature& signature = plan.signature[i];
    const auto filled = [&](const SymbolicShape& shape, bool one) {
      return Filled(signature.type.element, BoundShape(shape, symbols), one ? 1 : 0);
    };
    const auto [role, index] = plan.inputs[i];
    if (role == Role::kClient) continue;
    if (role == Role::kState && !states.empty()) {
      inputs[i] = states[index];
    } else if (role == Role::kState) {
      ONNXD_ASSIGN_OR_RETURN(inputs[i], filled(plan.states[index].shape, false));
    } else if (role == Role::kId) {
      const Shape shape = BoundShape(*signature.type.shape, symbols);
      ONNXD_ASSIGN_OR_RETURN(inputs[i], IdTensor(signature, shape, control.id));
    } else {
      const bool one = role == Role::kReady || (role == Role::kStart && control.starts) ||
                       (role == Role::kEnd && control.ends);
      ONNXD_ASSIGN_OR_RETURN(inputs[i], filled(*signature.type.shape, one));
    }
  }
  return inputs;
}

Result<std::vector<Value>> StatesOf(const SequencePlan& plan, const std::vector<Value>& outputs) {
  std::vector<Value> states;
  for (const SequencePlan::State& state : plan.states) {
    const Tensor& tensor = outputs[state.output].tensor();
    if (tensor.owner().use_count() == 1) {
      states.push_back(outputs[state.output]);
      continue;
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor copy, Tensor::Create(tensor.type(), tensor.shape()));
    if (copy.bytes() > 0) std::memcpy(copy.mutable_raw(), tensor.raw(), copy.bytes());
    states.emplace_back(std::move(copy));
  }
  return states;
}

}  // namespace onnxd
