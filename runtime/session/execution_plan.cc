#include "runtime/session/execution_plan.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/graph/shape_nodes.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/session/execution_planner.h"
#include "runtime/session/node_runner.h"

namespace onnxd {
namespace {

// Shape arithmetic is done while planning only for tensors this small.
constexpr int64_t kMaxKnownElements = 1024;

}  // namespace

Result<std::shared_ptr<const ExecutionPlan>> ExecutionPlanner::Run() {
  plan_ = std::make_shared<ExecutionPlan>();
  if (request_.device != nullptr) {
    ONNXD_ASSIGN_OR_RETURN(stream_, request_.device->MakeStream());
  }
  plan_->outputs_on_device = request_.outputs_on_device;
  FindLastUses();
  FindReadAtStrides();
  FindStaying();
  DefineInputs();
  for (const auto& [id, tensor] : request_.constants) DefineConstant(id, tensor);
  for (const auto& [id, tensor] : request_.device_constants) DefineDeviceConstant(id, tensor);
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    step_ = static_cast<int>(i);
    ONNXD_RETURN_IF_ERROR(PlanNode(i, true));
  }
  ONNXD_RETURN_IF_ERROR(DefineOutputs());
  DropUnread();
  ONNXD_RETURN_IF_ERROR(PlaceStorages());
  FindPlaces();
  NumberOperands();
  FindRecordable();
  if (!plan_->uses_device) FindDoneCells();
  if (stream_ != nullptr) ONNXD_RETURN_IF_ERROR(stream_->Synchronize());
  return std::shared_ptr<const ExecutionPlan>(plan_);
}

void ExecutionPlanner::FindLastUses() {
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    for (const auto* list : {&node.inputs, &node.captures}) {
      for (const ValueId id : *list) {
        if (id != kNoValue) last_use_[static_cast<size_t>(id)] = static_cast<int>(i);
      }
    }
  }
  for (const ValueId id : graph_.outputs) {
    is_output_[static_cast<size_t>(id)] = true;
    last_use_[static_cast<size_t>(id)] = std::numeric_limits<int>::max();
  }
}

void ExecutionPlanner::DefineInputs() {
  for (size_t i = 0; i < request_.inputs.size(); ++i) {
    ValueState& s = state(request_.inputs[i]);
    const Value& value = request_.values[i];
    s.slot.kind = Slot::Kind::kInput;
    s.slot.index = i;
    PlannedInput input;
    if (value.is_tensor()) {
      input.type = value.tensor().type();
      input.shape = value.tensor().shape();
      input.on_device = s.slot.on_device = value.tensor().device() != nullptr;
      s.dense = input.type != DataType::kString;
      s.slot.type = input.type;
      s.shape = input.shape;
      s.slot.shape = input.shape;
    }
    plan_->inputs.push_back(std::move(input));
  }
}

void ExecutionPlanner::DefineConstant(ValueId id, const Tensor& tensor) {
  ValueState& s = state(id);
  s.dense = tensor.type() != DataType::kString;
  s.shape = tensor.shape();
  s.known = tensor;
  s.slot.kind = Slot::Kind::kConstant;
  s.slot.index = plan_->constants.size();
  s.slot.type = tensor.type();
  s.slot.shape = tensor.shape();
  plan_->constants.emplace_back(tensor);
}

void ExecutionPlanner::DefinePacked(ValueId id) {
  const ValueType& type = graph_.value(id).type;
  ValueState& s = state(id);
  s.dense = type.element != DataType::kString;
  s.shape = type.shape ? ToConcrete(*type.shape) : std::nullopt;
  s.slot.type = type.element;
  if (s.shape) s.slot.shape = *s.shape;
}

Status ExecutionPlanner::PlanNode(size_t position, bool may_be_strided) {
  const Node& node = graph_.nodes[position];
  const CompiledNode& compiled = request_.nodes[position];
  for (const ValueId id : node.inputs) {
    if (id != kNoValue && state(id).slot.kind == Slot::Kind::kAbsent) DefinePacked(id);
  }
  if (compiled.side == Side::kToDevice) {
    const ValueState& source = state(node.inputs[0]);
    // It is there, or is brought there now for those who read it.
    if (source.slot.on_device || source.slot.kind == Slot::Kind::kConstant) {
      state(node.outputs[0]) = source;
      return Status::Ok();
    }
  }
  ONNXD_RETURN_IF_ERROR(CheckSides(node, compiled));
  ONNXD_RETURN_IF_ERROR(BringConstants(node, compiled));
  if (compiled.side == Side::kToHost && Stays(node)) return PlanStaying(node, compiled);
  if (compiled.control_flow != nullptr) return AddUnplanned(node, compiled);
  std::vector<ValueType> types;
  std::vector<const Tensor*> known;
  std::vector<OperandInfo> inputs;
  bool shapes_known = true, values_known = true;
  for (const ValueId id : node.inputs) {
    OperandInfo info;
    ValueType type;
    if (id != kNoValue) {
      ValueState& s = state(id);
      type = graph_.value(id).type;
      info.present = true;
      info.kind = type.kind;
      if (s.shape) {
        type = ValueType::TensorOf(s.slot.type, ToSymbolic(*s.shape));
        info.kind = type.kind;
        info.shape = &*s.shape;
      } else {
        type.shape.reset();
        shapes_known = shapes_known && !type.is_tensor();
      }
      info.type = type.element;
      if (s.known.defined()) info.value = &s.known;
      if (s.strides) info.strides = &*s.strides;
      values_known = values_known && s.known.defined();
    }
    types.push_back(std::move(type));
    inputs.push_back(info);
    known.push_back(info.value);
  }
  if (!shapes_known) return AddUnplanned(node, compiled);
  ONNXD_ASSIGN_OR_RETURN(const auto inferred, InferNode(node, types, known));
  std::vector<OperandInfo> outputs(node.outputs.size());
  std::vector<std::optional<Shape>> shapes(node.outputs.size());
  bool outputs_known = true, small = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (id == kNoValue) continue;
    const ValueType& type = inferred[i].known() ? inferred[i] : graph_.value(id).type;
    outputs[i].present = true;
    outputs[i].kind = type.kind;
    outputs[i].type = type.element;
    if (!type.is_tensor() || type.element == DataType::kString) {
      small = false;
      continue;
    }
    if (type.shape) shapes[i] = ToConcrete(*type.shape);
    if (!shapes[i]) {
      outputs_known = false;
      continue;
    }
    ONNXD_RETURN_IF_ERROR(shapes[i]->Validate().WithContext(Describe(node)));
    ONNXD_RETURN_IF_ERROR(CheckBytes(node, type.element, *shapes[i]));
    outputs[i].shape = &*shapes[i];
    small = small && shapes[i]->ElementCount() <= kMaxKnownElements;
  }
  const bool reads_shape_only = ReadsOnlyShapes(node);
  if (compiled.side == Side::kHost && outputs_known && small &&
      (values_known || reads_shape_only)) {
    if (Evaluate(node, compiled, reads_shape_only)) return Status::Ok();
  }
  if (!outputs_known) return AddUnplanned(node, compiled);
  if (DefineViews(position, outputs, known, may_be_strided)) return Status::Ok();
  ONNXD_RETURN_IF_ERROR(MakeDense(node, compiled, inputs));
  const PrepareContext context{node, inputs, outputs, request_.pool.threads()};
  auto prepared = compiled.kernel->Prepare(context);
  const bool has_strides = std::any_of(inputs.begin(), inputs.end(), [](const OperandInfo& info) {
    return info.strides != nullptr;
  });
  if (has_strides && prepared.status().code() == StatusCode::kUnimplemented) {
    ONNXD_RETURN_IF_ERROR(MakeAllDense(node));
    for (OperandInfo& info : inputs) info.strides = nullptr;
    prepared = compiled.kernel->Prepare(context);
  }
  if (!prepared.ok()) {
    if (prepared.status().code() == StatusCode::kFailedPrecondition) {
      return AddUnplanned(node, compiled);
    }
    return prepared.status();
  }
  return AddPlanned(node, compiled, std::move(*prepared), outputs, shapes);
}

Status ExecutionPlanner::CheckBytes(const Node& node, DataType type, const Shape& shape) const {
  const auto bytes = TensorBytes(type, shape.ElementCount());
  if (bytes && *bytes <= request_.max_bytes) return Status::Ok();
  return ResourceExhausted(StrCat(Describe(node), " gives a tensor of shape ", shape.ToString(),
                                  ", the limit is ", request_.max_bytes, " bytes"));
}

bool ExecutionPlanner::Evaluate(const Node& node, const CompiledNode& compiled,
                                bool reads_shape_only) {
  std::vector<Value> inputs;
  for (const ValueId id : node.inputs) {
    if (id == kNoValue) {
      inputs.emplace_back();
    } else if (reads_shape_only) {
      inputs.emplace_back(Tensor::Wrap(state(id).slot.type, *state(id).shape, nullptr, nullptr));
    } else {
      inputs.emplace_back(state(id).known);
    }
  }
  std::vector<ValueType> types;
  for (const ValueId id : node.outputs) {
    types.push_back(id == kNoValue ? ValueType{} : graph_.value(id).type);
  }
  auto results =
      RunNode({*compiled.kernel, node, inputs, types, request_.pool.threads(), request_.max_bytes},
              request_.pool);
  if (!results.ok()) return false;
  for (const Value& value : *results) {
    if (!value.absent() && !value.is_tensor()) return false;
  }
  for (size_t i = 0; i < results->size(); ++i) {
    if (node.outputs[i] != kNoValue) DefineConstant(node.outputs[i], (*results)[i].tensor());
  }
  return true;
}

Slot ExecutionPlanner::OperandSlot(ValueId id, bool on_device) {
  if (id == kNoValue) return Slot{};
  const ValueState& s = state(id);
  return on_device && s.device_slot.kind == Slot::Kind::kConstant ? s.device_slot : s.slot;
}

Step ExecutionPlanner::NewStep(const Node& node, const CompiledNode& compiled) {
  Step step{};
  step.node = &node;
  step.kernel = compiled.kernel.get();
  step.control_flow = compiled.control_flow.get();
  step.side = compiled.side;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const bool on_device = compiled.ReadsOnDevice(i);
    step.inputs.push_back(OperandSlot(node.inputs[i], on_device));
  }
  for (const ValueId id : node.captures) step.inputs.push_back(OperandSlot(id, false));
  return step;
}

Slot::Kind ExecutionPlanner::ArenaOf(bool on_device) {
  return on_device ? Slot::Kind::kDeviceArena : Slot::Kind::kArena;
}

Status ExecutionPlanner::AddUnplanned(const Node& node, const CompiledNode& compiled) {
  ONNXD_RETURN_IF_ERROR(MakeAllDense(node));
  Step step = NewStep(node, compiled);
  step.planned = false;
  Touch(node);
  for (const ValueId id : node.outputs) {
    step.outputs.push_back(id == kNoValue ? Slot{} : NewCell(id));
    if (id != kNoValue) state(id).dense = false;
  }
  AddStep(std::move(step), compiled);
  return Status::Ok();
}

Status ExecutionPlanner::AddPlanned(const Node& node, const CompiledNode& compiled,
                                    PreparedKernel prepared,
                                    const std::vector<OperandInfo>& outputs,
                                    const std::vector<std::optional<Shape>>& shapes) {
  Step step = NewStep(node, compiled);
  step.planned = true;
  Touch(node);
  bool all_views = !prepared.views.empty();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (id == kNoValue) {
      step.outputs.emplace_back();
      continue;
    }
    if (!shapes[i]) {
      step.outputs.push_back(NewCell(id));
      all_views = false;
      continue;
    }
    ValueState& s = state(id);
    s.dense = true;
    s.shape = *shapes[i];
    if (!TryView(node, prepared, i, id, outputs[i].type)) {
      all_views = false;
      PlaceOutput(node, prepared, i, id, outputs[i].type, WritesDevice(compiled.side));
    }
    step.outputs.push_back(s.slot);
  }
  step.prepared = std::move(prepared);
  if (all_views) return Status::Ok();  // nothing to compute
  if (step.prepared.on_failure) plan_->may_fail_on_device = true;
  AddStep(std::move(step), compiled);
  return Status::Ok();
}

void ExecutionPlanner::AddStep(Step step, const CompiledNode& compiled) {
  WaitForInputs(compiled, step);
  if (compiled.side != Side::kHost) plan_->uses_device = true;
  // Storages are looked up when offsets exist: the slot's index carries the storage until then.
  const auto remember = [&](std::vector<Slot>& slots, const std::vector<ValueId>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != kNoValue && InArena(slots[i])) {
        slots[i].index = static_cast<size_t>(state(ids[i]).storage);
      }
    }
  };
  std::vector<ValueId> operands = step.node->inputs;
  operands.insert(operands.end(), step.node->captures.begin(), step.node->captures.end());
  remember(step.inputs, operands);
  remember(step.outputs, step.node->outputs);
  if (step.planned && step.prepared.scratch_bytes > 0) {
    step.scratch_offset = storages_.size();
    storages_.push_back({step.prepared.scratch_bytes, step_, step_, step.side == Side::kDevice});
  }
  if (compiled.side == Side::kToHost) {
    state(step.node->outputs[0]).copied_to_host = ++copies_to_host_;
  }
  plan_->steps.push_back(std::move(step));
}

Result<std::shared_ptr<const ExecutionPlan>> MakeExecutionPlan(const PlanRequest& request) {
  return ExecutionPlanner(request).Run();
}

}  // namespace onnxd
