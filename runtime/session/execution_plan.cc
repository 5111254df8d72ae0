#include "runtime/session/execution_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/graph/shape_nodes.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/ops/strided_view.h"
#include "runtime/session/memory_planner.h"
#include "runtime/session/node_runner.h"
#include "runtime/tensor/device_tensor.h"

namespace onnxd {
namespace {

// Shape arithmetic is done while planning only for tensors this small.
constexpr int64_t kMaxKnownElements = 1024;

// What the planner knows of a value.
struct ValueState {
  bool dense = false;          // a tensor that is not of strings
  std::optional<Shape> shape;  // of a dense tensor
  Tensor known;                // its elements, when they are known
  Slot slot;
  Slot device_slot;  // of a constant, once a device kernel reads it
  int storage = -1;  // kArena and kDeviceArena: index into storages
  // Not dense: elements of another value, whose slot it has.
  std::optional<StridedView> view;
  std::optional<std::vector<int64_t>> strides;  // of the view, where they say all of it
  int producer = -1;                            // the node that would make it dense
  int views = 0;                                // how many such nodes are behind it
  int copied_to_host = 0;  // how many copies to the host there were when this one was: 0 for others
};

// Where views of elements may begin: kernels count on such addresses.
constexpr size_t kAlignment = 64;

// Views of views: making the last one dense makes all of them so.
constexpr int kMostViews = 32;

struct Storage {
  size_t bytes;
  int first, last;
  bool on_device;
};

bool InArena(const Slot& slot) {
  return slot.kind == Slot::Kind::kArena || slot.kind == Slot::Kind::kDeviceArena;
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request),
        graph_(request.graph),
        states_(request.graph.value_count()),
        last_use_(request.graph.value_count(), -1),
        is_output_(request.graph.value_count(), false),
        at_strides_(request.graph.value_count(), true) {}

  Result<std::shared_ptr<const ExecutionPlan>> Run() {
    plan_ = std::make_shared<ExecutionPlan>();
    if (request_.device != nullptr) {
      ONNXD_ASSIGN_OR_RETURN(stream_, request_.device->MakeStream());
    }
    plan_->outputs_on_device = request_.outputs_on_device;
    FindLastUses();
    FindReadAtStrides();
    if (request_.outputs_on_device) FindStaying();
    DefineInputs();
    for (const auto& [id, tensor] : request_.constants) DefineConstant(id, tensor);
    for (const auto& [id, tensor] : request_.device_constants) DefineDeviceConstant(id, tensor);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      step_ = static_cast<int>(i);
      ONNXD_RETURN_IF_ERROR(PlanNode(i, true));
    }
    ONNXD_RETURN_IF_ERROR(DefineOutputs());
    ONNXD_RETURN_IF_ERROR(PlaceStorages());
    NumberOperands();
    FindRecordable();
    if (stream_ != nullptr) ONNXD_RETURN_IF_ERROR(stream_->Synchronize());
    return std::shared_ptr<const ExecutionPlan>(plan_);
  }

 private:
  ValueState& state(ValueId id) { return states_[static_cast<size_t>(id)]; }

  void FindLastUses() {
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

  // Which values are read at any strides alone, or for their shapes: whatever moves elements for
  // them need not run.
  void FindReadAtStrides() {
    for (const ValueId id : graph_.outputs) at_strides_[static_cast<size_t>(id)] = false;
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      if (ReadsOnlyShapes(node)) continue;
      const Kernel* kernel = request_.nodes[n].kernel.get();
      const bool passes_on = MovesElements(node) &&
                             std::all_of(node.outputs.begin(), node.outputs.end(), [&](auto id) {
                               return id == kNoValue || at_strides_[static_cast<size_t>(id)];
                             });
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const bool takes = kernel != nullptr && kernel->TakesStrides(i);
        if (node.inputs[i] == kNoValue || takes || (i == 0 && passes_on)) continue;
        at_strides_[static_cast<size_t>(node.inputs[i])] = false;
      }
      for (const ValueId id : node.captures) {
        if (id != kNoValue) at_strides_[static_cast<size_t>(id)] = false;
      }
    }
  }

  // Copies to the host whose results nothing but the caller reads: what they would copy stays.
  void FindStaying() {
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
      staying_.emplace(node.inputs[0], static_cast<size_t>(at - graph_.outputs.begin()));
    }
  }

  void DefineInputs() {
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

  void DefineConstant(ValueId id, const Tensor& tensor) {
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

  // Its elements on the device; what is only there has a type and a shape besides.
  void DefineDeviceConstant(ValueId id, const Tensor& tensor) {
    if (state(id).slot.kind == Slot::Kind::kAbsent) DefinePacked(id);
    Slot& slot = state(id).device_slot;
    slot.kind = Slot::Kind::kConstant;
    slot.index = plan_->constants.size();
    slot.type = tensor.type();
    slot.shape = tensor.shape();
    plan_->constants.emplace_back(tensor);
  }

  // Before a device kernel reads a constant that planning computed.
  Status BringConstants(const Node& node, const CompiledNode& compiled) {
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

  // A constant that a kernel packed: its type and shape are known, its elements are gone.
  void DefinePacked(ValueId id) {
    const ValueType& type = graph_.value(id).type;
    ValueState& s = state(id);
    s.dense = type.element != DataType::kString;
    s.shape = type.shape ? ToConcrete(*type.shape) : std::nullopt;
    s.slot.type = type.element;
    if (s.shape) s.slot.shape = *s.shape;
  }

  // `may_be_strided`: its outputs, for those who read them so.
  Status PlanNode(size_t position, bool may_be_strided) {
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

  // An input of the graph that is on the device is not read on the host.
  Status CheckSides(const Node& node, const CompiledNode& compiled) {
    const auto refuse = [&](ValueId id) {
      return InvalidArgument(StrCat("input '", graph_.value(id).name, "' is on ",
                                    request_.device->name(), ", but ", Describe(node),
                                    " reads it on the host"));
    };
    const auto is_there = [&](ValueId id) {
      return id != kNoValue && state(id).slot.kind == Slot::Kind::kInput &&
             state(id).slot.on_device;
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

  // Whether the output that this copy gives may stay on the device: its shape must be known.
  bool Stays(const Node& node) {
    const auto found = staying_.find(node.inputs[0]);
    return found != staying_.end() && graph_.outputs[found->second] == node.outputs[0] &&
           state(node.inputs[0]).dense && state(node.inputs[0]).shape;
  }

  // The output is what was to be copied, or a copy of it on the device where that is not an output
  // buffer of its own.
  Status PlanStaying(const Node& node, const CompiledNode& compiled) {
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

  // Lets the outputs of what only moves elements be elements of its input: as they are, or, for
  // those who read them so, at strides. False where it must compute.
  bool DefineViews(size_t position, std::span<const OperandInfo> outputs,
                   std::span<const Tensor* const> known, bool may_be_strided) {
    const Node& node = graph_.nodes[position];
    if (!MovesElements(node) || node.inputs.empty() || node.inputs[0] == kNoValue) return false;
    const ValueState source = state(node.inputs[0]);
    const bool is_on_device = request_.nodes[position].side == Side::kDevice;
    const bool in_arena = source.slot.kind == ArenaOf(is_on_device);
    const bool here = in_arena || (is_on_device && source.slot.on_device);
    const bool whole_bytes = DataTypeBits(source.slot.type) >= 8;
    if (!here || !source.shape || !whole_bytes || source.views == kMostViews) return false;
    std::vector<const Shape*> shapes;
    for (const OperandInfo& output : outputs) shapes.push_back(output.shape);
    StridedView in = source.view ? *source.view : StridedView::Of(*source.shape);
    in.offset = 0;  // the slot's
    const auto views = ViewsThrough(node, in, shapes, known);
    if (!views) return false;
    const size_t bytes = static_cast<size_t>(DataTypeBits(source.slot.type) / 8);
    for (size_t i = 0; i < views->size(); ++i) {
      const auto id = static_cast<size_t>(node.outputs[i]);
      const StridedView& view = (*views)[i];
      const size_t offset = static_cast<size_t>(view.offset) * bytes;
      const bool may_begin_behind = in_arena && !is_output_[id];
      const bool fits = offset % kAlignment == 0 && (may_begin_behind || offset == 0);
      if (!fits || (!view.IsDense() && !(may_be_strided && at_strides_[id]))) return false;
    }
    for (size_t i = 0; i < views->size(); ++i) {
      const StridedView& view = (*views)[i];
      ValueState& s = state(node.outputs[i]);
      s = source;
      s.dense = true;
      s.shape = view.shape;
      s.known = Tensor();
      s.device_slot = Slot{};
      s.slot.shape = view.shape;
      s.slot.offset += static_cast<size_t>(view.offset) * bytes;
      if (view.IsDense()) {
        s.view.reset();
        s.strides.reset();
        s.views = 0;
      } else {
        s.view = view;
        s.strides = view.Strides();
        s.producer = static_cast<int>(position);
        s.views = source.views + 1;
      }
      if (s.storage >= 0) ExtendForUses(node.outputs[i], s.storage);
    }
    return true;
  }

  // Makes inputs dense that the kernel does not take as they are.
  Status MakeDense(const Node& node, const CompiledNode& compiled, std::span<OperandInfo> inputs) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || !state(id).view) continue;
      if (state(id).strides && compiled.kernel->TakesStrides(i)) continue;
      ONNXD_RETURN_IF_ERROR(MakeDense(id));
      inputs[i].strides = nullptr;
    }
    return Status::Ok();
  }

  Status MakeAllDense(const Node& node) {
    for (const auto* list : {&node.inputs, &node.captures}) {
      for (const ValueId id : *list) {
        if (id != kNoValue) ONNXD_RETURN_IF_ERROR(MakeDense(id));
      }
    }
    return Status::Ok();
  }

  // Plans the node that was left out because others read its elements where they are.
  Status MakeDense(ValueId id) {
    if (!state(id).view) return Status::Ok();
    const auto position = static_cast<size_t>(state(id).producer);
    const Node& node = graph_.nodes[position];
    ONNXD_RETURN_IF_ERROR(MakeDense(node.inputs[0]));
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) state(output) = ValueState{};
    }
    return PlanNode(position, false);
  }

  // Kernels make tables for their outputs, so what cannot be is refused before they prepare.
  Status CheckBytes(const Node& node, DataType type, const Shape& shape) const {
    const auto bytes = TensorBytes(type, shape.ElementCount());
    if (bytes && *bytes <= request_.max_bytes) return Status::Ok();
    return ResourceExhausted(StrCat(Describe(node), " gives a tensor of shape ", shape.ToString(),
                                    ", the limit is ", request_.max_bytes, " bytes"));
  }

  // Computes the node now; false when that did not work, and it is planned like any other.
  bool Evaluate(const Node& node, const CompiledNode& compiled, bool reads_shape_only) {
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
    auto results = RunNode(
        {*compiled.kernel, node, inputs, types, request_.pool.threads(), request_.max_bytes},
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

  Slot OperandSlot(ValueId id, bool on_device) {
    if (id == kNoValue) return Slot{};
    const ValueState& s = state(id);
    return on_device && s.device_slot.kind == Slot::Kind::kConstant ? s.device_slot : s.slot;
  }

  Step NewStep(const Node& node, const CompiledNode& compiled) {
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

  // What a copy brings to the host is there once someone waited for the device after it.
  void WaitFor(ValueId id, Step& step) {
    if (id == kNoValue || state(id).copied_to_host <= waited_for_) return;
    step.waits = true;
    waited_for_ = copies_to_host_;
  }

  void WaitForInputs(const CompiledNode& compiled, Step& step) {
    const Node& node = *step.node;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!compiled.ReadsOnDevice(i)) WaitFor(node.inputs[i], step);
    }
    for (const ValueId id : node.captures) WaitFor(id, step);
  }

  // Extends the life of the storages that a step reads.
  void Touch(const Node& node) {
    for (const auto* list : {&node.inputs, &node.captures}) {
      for (const ValueId id : *list) {
        if (id == kNoValue || state(id).storage < 0) continue;
        Storage& storage = storages_[static_cast<size_t>(state(id).storage)];
        storage.last = std::max(storage.last, step_);
      }
    }
  }

  static Slot::Kind ArenaOf(bool on_device) {
    return on_device ? Slot::Kind::kDeviceArena : Slot::Kind::kArena;
  }

  Slot NewCell(ValueId id) {
    Slot slot;
    slot.kind = Slot::Kind::kCell;
    slot.index = plan_->cells++;
    slot.type = graph_.value(id).type.element;
    state(id).slot = slot;
    return slot;
  }

  Status AddUnplanned(const Node& node, const CompiledNode& compiled) {
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

  Status AddPlanned(const Node& node, const CompiledNode& compiled, PreparedKernel prepared,
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

  // Lets output i be the bytes of the input it is a view of.
  bool TryView(const Node& node, const PreparedKernel& prepared, size_t i, ValueId id,
               DataType type) {
    for (const auto& [output, input] : prepared.views) {
      if (static_cast<size_t>(output) != i) continue;
      const ValueState& source = state(node.inputs[static_cast<size_t>(input)]);
      ValueState& s = state(id);
      s.slot = source.slot;
      s.slot.shape = *s.shape;
      s.slot.type = type;
      s.device_slot = source.device_slot;
      s.device_slot.shape = *s.shape;
      s.copied_to_host = source.copied_to_host;
      s.storage = source.storage;
      if (source.known.defined()) s.known = source.known.Reshaped(*s.shape);
      if (s.storage >= 0) ExtendForUses(id, s.storage);
      return true;
    }
    return false;
  }

  void ExtendForUses(ValueId id, int storage) {
    Storage& target = storages_[static_cast<size_t>(storage)];
    target.last = std::max(target.last, last_use_[static_cast<size_t>(id)]);
  }

  void PlaceOutput(const Node& node, const PreparedKernel& prepared, size_t i, ValueId id,
                   DataType type, bool on_device) {
    ValueState& s = state(id);
    s.slot.type = type;
    s.slot.shape = *s.shape;
    const size_t bytes =
        static_cast<size_t>(TensorBytes(type, s.shape->ElementCount()).value_or(0));
    if (is_output_[static_cast<size_t>(id)] && !on_device) {
      const auto at = std::find(graph_.outputs.begin(), graph_.outputs.end(), id);
      s.slot.kind = Slot::Kind::kOutput;
      s.slot.index = static_cast<size_t>(at - graph_.outputs.begin());
      return;
    }
    if (const auto stays = staying_.find(id); on_device && stays != staying_.end()) {
      s.slot.kind = Slot::Kind::kOutput;
      s.slot.index = stays->second;
      s.slot.on_device = true;
      return;
    }
    s.slot.kind = ArenaOf(on_device);
    for (const auto& [output, input] : prepared.in_place) {
      if (static_cast<size_t>(output) != i) continue;
      const ValueId source = node.inputs[static_cast<size_t>(input)];
      const int storage = state(source).storage;
      if (storage < 0 || state(source).view) continue;
      Storage& reused = storages_[static_cast<size_t>(storage)];
      if (reused.on_device != on_device || reused.last > step_ || reused.bytes != bytes ||
          ReadElsewhere(node, storage, input)) {
        continue;
      }
      s.storage = storage;
      ExtendForUses(id, storage);
      return;
    }
    s.storage = static_cast<int>(storages_.size());
    storages_.push_back({bytes, step_, step_, on_device});
    ExtendForUses(id, s.storage);
  }

  // Whether another operand of the node lives in the same storage.
  bool ReadElsewhere(const Node& node, int storage, int except) {
    for (size_t j = 0; j < node.inputs.size(); ++j) {
      if (static_cast<int>(j) != except && node.inputs[j] != kNoValue &&
          state(node.inputs[j]).storage == storage) {
        return true;
      }
    }
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id != kNoValue && state(id).storage == storage; });
  }

  void AddStep(Step step, const CompiledNode& compiled) {
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

  Status DefineOutputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i];
      const ValueState& s = state(id);
      OutputSource source;
      source.slot = s.slot;
      source.from_device = s.copied_to_host > 0;
      if (InArena(s.slot)) source.slot.index = static_cast<size_t>(s.storage);
      const bool is_device_input = s.slot.kind == Slot::Kind::kInput && s.slot.on_device;
      if (is_device_input && !request_.outputs_on_device) {
        return InvalidArgument(StrCat("output '", graph_.value(id).name,
                                      "' is an input that is on ", request_.device->name()));
      }
      if (s.slot.kind == Slot::Kind::kCell || !s.dense || is_device_input) {
        source.kind = OutputSource::Kind::kValue;
      } else if (s.slot.kind == Slot::Kind::kOutput && s.slot.index == i) {
        source.shape = *s.shape;
      } else {
        source.kind = OutputSource::Kind::kCopy;
        source.shape = *s.shape;
      }
      plan_->outputs.push_back(std::move(source));
    }
    return Status::Ok();
  }

  // Offsets of the storages on one side; the bytes they take together.
  size_t PlaceSide(bool on_device, std::vector<size_t>& offsets) const {
    std::vector<StorageRequest> requests;
    std::vector<size_t> which;
    for (size_t i = 0; i < storages_.size(); ++i) {
      if (storages_[i].on_device != on_device) continue;
      requests.push_back({storages_[i].bytes, storages_[i].first, storages_[i].last});
      which.push_back(i);
    }
    const MemoryPlan memory = PlanMemory(requests);
    for (size_t i = 0; i < which.size(); ++i) offsets[which[i]] = memory.offsets[i];
    return memory.arena_bytes;
  }

  Status PlaceStorages() {
    std::vector<size_t> offsets(storages_.size());
    plan_->arena_bytes = PlaceSide(false, offsets);
    plan_->device_arena_bytes = PlaceSide(true, offsets);
    const size_t most = std::max(plan_->arena_bytes, plan_->device_arena_bytes);
    if (most > static_cast<size_t>(request_.max_bytes)) {
      return ResourceExhausted(StrCat("this input needs ", most,
                                      " bytes of memory to compute, the limit is ",
                                      request_.max_bytes));
    }
    const auto place = [&](Slot& slot) {
      if (InArena(slot)) slot.index = offsets[slot.index] + slot.offset;
    };
    for (Step& step : plan_->steps) {
      for (Slot& slot : step.inputs) place(slot);
      for (Slot& slot : step.outputs) place(slot);
      if (step.planned && step.prepared.scratch_bytes > 0) {
        step.scratch_offset = offsets[step.scratch_offset];
      }
    }
    for (OutputSource& output : plan_->outputs) place(output.slot);
    return Status::Ok();
  }

  void NumberOperands() {
    for (Step& step : plan_->steps) {
      step.first_operand = plan_->operands;
      for (const auto* slots : {&step.inputs, &step.outputs}) {
        for (const Slot& slot : *slots) {
          const size_t position = plan_->operands++;
          if (slot.kind == Slot::Kind::kInput) {
            plan_->input_patches.emplace_back(position, slot.index);
          } else if (slot.kind == Slot::Kind::kOutput) {
            plan_->output_patches.emplace_back(position, slot.index);
          } else if (slot.kind == Slot::Kind::kArena) {
            plan_->arena_patches.emplace_back(position, slot.index);
          }
        }
      }
    }
  }

  // Of an input or output of the run, on the device.
  static bool IsBound(const Slot& slot) {
    return slot.on_device && (slot.kind == Slot::Kind::kInput || slot.kind == Slot::Kind::kOutput);
  }

  static bool IsRecordable(const Step& step) {
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

  std::vector<size_t> AddressesIn(size_t begin, size_t end) const {
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

  void FindRecordable() {
    const std::vector<Step>& steps = plan_->steps;
    for (size_t begin = 0; begin < steps.size();) {
      size_t end = begin;
      while (end < steps.size() && IsRecordable(steps[end])) ++end;
      if (end - begin > 1) plan_->recordable.push_back({begin, end, AddressesIn(begin, end)});
      begin = std::max(end, begin + 1);
    }
  }

  const PlanRequest& request_;
  const Graph& graph_;
  std::shared_ptr<ExecutionPlan> plan_;
  std::vector<ValueState> states_;
  std::vector<int> last_use_;
  std::vector<bool> is_output_;
  std::vector<bool> at_strides_;       // by value, see FindReadAtStrides
  std::map<ValueId, size_t> staying_;  // values on the device that are outputs there, and which
  std::vector<Storage> storages_;
  std::unique_ptr<Stream> stream_;  // that brings constants to the device; null: there is none
  int step_ = -1;
  int copies_to_host_ = 0, waited_for_ = 0;
};

}  // namespace

Result<std::shared_ptr<const ExecutionPlan>> MakeExecutionPlan(const PlanRequest& request) {
  return Planner(request).Run();
}

}  // namespace onnxd
