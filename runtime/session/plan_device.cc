// What a plan knows of a device: constants that are brought there, inputs and outputs that are and
// stay there, what the host waits for, and steps that the device may record.
#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/graph/shape_nodes.h"
#include "runtime/session/execution_planner.h"
#include "runtime/tensor/device_tensor.h"

namespace onnxd {

void ExecutionPlanner::FindStaying() {
  const auto& wanted = request_.outputs_on_device;
  if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) return;
  std::vector<bool> is_read(graph_.value_count(), false);
  for (const Node& node : graph_.nodes) {
    for (const auto* list : {&node.inputs, &node.captures}) {
      for (const ValueId id : *list) {
        if (id != kNoValue) is_read[static_cast<size_t>(id)] = true;
      }
    }
  }
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    if (request_.nodes[n].side != Side::kToHost) continue;
    const ValueId id = node.outputs[0];
    if (!is_output_[static_cast<size_t>(id)] || is_read[static_cast<size_t>(id)]) continue;
    const auto at = std::find(graph_.outputs.begin(), graph_.outputs.end(), id);
    const auto output = static_cast<size_t>(at - graph_.outputs.begin());
    if (wanted[output]) staying_.emplace(node.inputs[0], output);
  }
}

void ExecutionPlanner::DefineDeviceConstant(ValueId id, const Tensor& tensor) {
  if (state(id).slot.kind == Slot::Kind::kAbsent) DefinePacked(id);
  Slot& slot = state(id).device_slot;
  slot.kind = Slot::Kind::kConstant;
  slot.index = plan_->constants.size();
  slot.type = tensor.type();
  slot.shape = tensor.shape();
  plan_->constants.emplace_back(tensor);
}

Status ExecutionPlanner::BringConstants(const Node& node, const CompiledNode& compiled) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNoValue || !compiled.ReadsOnDevice(i)) continue;
    ValueState& s = state(id);
    if (s.slot.kind != Slot::Kind::kConstant || s.device_slot.kind == Slot::Kind::kConstant) {
      continue;
    }
    ONNXD_ASSIGN_OR_RETURN(const Tensor tensor,
                           CopyToDevice(s.known.Reshaped(*s.shape), *request_.device, *stream_));
    DefineDeviceConstant(id, tensor);
  }
  return Status::Ok();
}

Status ExecutionPlanner::CheckSides(const Node& node, const CompiledNode& compiled) {
  const auto refuse = [&](ValueId id) {
    return InvalidArgument(StrCat("input '", graph_.value(id).name, "' is on ",
                                  request_.device->name(), ", but ", Describe(node),
                                  " reads it on the host"));
  };
  const auto is_there = [&](ValueId id) {
    return id != kNoValue && state(id).slot.kind == Slot::Kind::kInput && state(id).slot.on_device;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const bool wants_host = compiled.kernel == nullptr || !compiled.ReadsOnDevice(i);
    if (is_there(node.inputs[i]) && wants_host && !ReadsOnlyShapes(node)) {
      return refuse(node.inputs[i]);
    }
  }
  for (const ValueId id : node.captures) {
    if (is_there(id)) return refuse(id);
  }
  return Status::Ok();
}

bool ExecutionPlanner::Stays(const Node& node) {
  const auto found = staying_.find(node.inputs[0]);
  return found != staying_.end() && graph_.outputs[found->second] == node.outputs[0] &&
         state(node.inputs[0]).dense && state(node.inputs[0]).shape;
}

Status ExecutionPlanner::PlanStaying(const Node& node, const CompiledNode& compiled) {
  const ValueId from = node.inputs[0], to = node.outputs[0];
  ONNXD_RETURN_IF_ERROR(MakeDense(from));
  const size_t output = staying_.at(from);
  const ValueState source = state(from);
  ValueState& s = state(to);
  s.dense = true;
  s.shape = source.shape;
  s.slot.kind = Slot::Kind::kOutput;
  s.slot.index = output;
  s.slot.on_device = true;
  s.slot.type = source.slot.type;
  s.slot.shape = *source.shape;
  if (source.slot.kind == Slot::Kind::kOutput && source.slot.index == output) return Status::Ok();
  Step step = NewStep(node, compiled);
  step.planned = true;
  step.side = Side::kDevice;
  Touch(node);
  step.outputs.push_back(s.slot);
  const auto bytes =
      static_cast<size_t>(TensorBytes(s.slot.type, source.shape->ElementCount()).value_or(0));
  step.prepared.compute = [bytes](const KernelContext& k) {
    return k.stream().CopyWithin(k.output<void>(0), k.input<void>(0), bytes);
  };
  AddStep(std::move(step), compiled);
  return Status::Ok();
}

void ExecutionPlanner::WaitFor(ValueId id, Step& step) {
  if (id == kNoValue || state(id).copied_to_host <= waited_for_) return;
  step.waits = true;
  waited_for_ = copies_to_host_;
}

void ExecutionPlanner::WaitForInputs(const CompiledNode& compiled, Step& step) {
  const Node& node = *step.node;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!compiled.ReadsOnDevice(i)) WaitFor(node.inputs[i], step);
  }
  for (const ValueId id : node.captures) WaitFor(id, step);
}

bool ExecutionPlanner::IsBound(const Slot& slot) {
  return slot.on_device && (slot.kind == Slot::Kind::kInput || slot.kind == Slot::Kind::kOutput);
}

bool ExecutionPlanner::IsRecordable(const Step& step) {
  if (!step.planned || step.side != Side::kDevice || step.waits) return false;
  for (const auto* slots : {&step.inputs, &step.outputs}) {
    for (const Slot& slot : *slots) {
      if (slot.kind != Slot::Kind::kAbsent && slot.kind != Slot::Kind::kConstant &&
          slot.kind != Slot::Kind::kDeviceArena && !IsBound(slot)) {
        return false;
      }
    }
  }
  return true;
}

std::vector<size_t> ExecutionPlanner::AddressesIn(size_t begin, size_t end) const {
  std::vector<size_t> positions;
  for (size_t i = begin; i < end; ++i) {
    const Step& step = plan_->steps[i];
    size_t position = step.first_operand;
    for (const auto* slots : {&step.inputs, &step.outputs}) {
      for (const Slot& slot : *slots) {
        if (IsBound(slot)) positions.push_back(position);
        ++position;
      }
    }
  }
  return positions;
}

void ExecutionPlanner::FindRecordable() {
  const std::vector<Step>& steps = plan_->steps;
  for (size_t begin = 0; begin < steps.size();) {
    size_t end = begin;
    while (end < steps.size() && IsRecordable(steps[end])) ++end;
    if (end - begin > 1) plan_->recordable.push_back({begin, end, AddressesIn(begin, end)});
    begin = std::max(end, begin + 1);
  }
}

}  // namespace onnxd
