#include "runtime/session/graph_executor.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "runtime/base/denormals.h"
#include "runtime/base/str_cat.h"
#include "runtime/base/thread_slice.h"
#include "runtime/session/control_flow_nodes.h"
#include "runtime/session/device_partition.h"
#include "runtime/session/node_runner.h"
#include "runtime/session/partitioner.h"
#include "runtime/session/run_profile.h"
#include "runtime/session/value_check.h"
#include "runtime/tensor/device_tensor.h"
#include "runtime/tensor/shared_tensor.h"

namespace onnxd {
namespace {

bool IsDense(const Value& value) {
  return value.is_tensor() && value.tensor().type() != DataType::kString;
}

// What a kernel is given for a value: its elements, or the Value itself (KernelContext).
void* OperandAddress(const Value& value) {
  return IsDense(value) ? const_cast<void*>(value.tensor().raw()) : const_cast<Value*>(&value);
}

}  // namespace

// What one run in flight of a plan needs besides an arena.
struct GraphExecutor::Context {
  Arena arena;                           // while it runs
  const std::byte* addressed = nullptr;  // the arena that `operands` point into
  std::unique_ptr<Stream> stream;        // null: nothing runs on a device
  DeviceBuffer device_arena;
  std::vector<Value> cells;
  int64_t cell_bytes = 0;       // of the dense ones
  std::vector<void*> operands;  // addresses by position, see Step::first_operand
  std::vector<std::unique_ptr<KernelState>> states;  // one per step, most are null
  std::vector<KeptNode> kept;                        // one per step, for the unplanned ones

  // Of ExecutionPlan::recordable.
  struct Recording {
    // For the inputs and outputs at these addresses.
    struct Graph {
      std::vector<void*> addresses;
      std::unique_ptr<DeviceGraph> graph;
    };
    bool ran = false;           // once, step by step: kernels may do something the first time
    bool refused = false;       // the device does not record these steps
    int unused = 0;             // recordings in a row that were not replayed since
    std::vector<Graph> graphs;  // latest use last
  };
  std::vector<Recording> recordings;
};

void* GraphExecutor::DeviceAddress(const Context& context, size_t offset) {
  return static_cast<std::byte*>(context.device_arena.get()) + offset;
}

struct GraphExecutor::PlanEntry {
  std::shared_ptr<const ExecutionPlan> plan;
  std::vector<std::unique_ptr<Context>> idle;  // guarded by GraphExecutor::mutex_
  size_t given_bytes = 0;                      // of the last run's outputs; guarded by it as well
};

GraphExecutor::~GraphExecutor() = default;

Result<std::unique_ptr<GraphExecutor>> GraphExecutor::Create(std::shared_ptr<Graph> graph,
                                                             ExecutorOptions options) {
  std::unique_ptr<GraphExecutor> executor(new GraphExecutor());
  executor->graph_ = graph;
  executor->options_ = std::move(options);
  const Graph& g = *executor->graph_;
  executor->inputs_ = g.inputs;
  for (const ValueId id : g.captures) {
    if (id != kNoValue) executor->inputs_.push_back(id);
  }
  executor->device_ = DeviceOf(executor->options_.providers);
  for (const Node& node : g.nodes) ONNXD_RETURN_IF_ERROR(executor->CompileNode(node));
  ONNXD_RETURN_IF_ERROR(executor->BringConstants());
  // What kernels packed must not stay twice.
  for (auto& [id, initializer] : graph->initializers) {
    if (!initializer.was_read()) initializer.Yield();
  }
  if (!executor->options_.keep_initializers) graph->initializers.clear();
  return executor;
}

// What is still read as it is, on either side: operands of kernels that want them, control flow,
// and outputs.
Status GraphExecutor::BringConstants() {
  // Planning reads small constants, wherever kernels do.
  constexpr int64_t kAlwaysOnHost = 1024;
  const Graph& g = *graph_;
  std::vector<bool> on_host(g.value_count(), false), on_device(g.value_count(), false);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Kernel* kernel = nodes_[n].kernel.get();
      if (node.inputs[i] == kNoValue || (kernel != nullptr && !kernel->ReadsInput(i))) continue;
      const bool device = kernel != nullptr && nodes_[n].ReadsOnDevice(i);
      (device ? on_device : on_host)[static_cast<size_t>(node.inputs[i])] = true;
    }
    for (const ValueId id : node.captures) {
      if (id != kNoValue) on_host[static_cast<size_t>(id)] = true;
    }
  }
  for (const ValueId id : g.outputs) on_host[static_cast<size_t>(id)] = true;
  std::unique_ptr<Stream> stream;
  for (const auto& [id, initializer] : g.initializers) {
    const auto i = static_cast<size_t>(id);
    if (!on_host[i] && !on_device[i]) continue;
    ONNXD_ASSIGN_OR_RETURN(Tensor constant, initializer.Materialize());
    if (on_device[i]) {
      if (stream == nullptr) {
        ONNXD_ASSIGN_OR_RETURN(stream, device_->MakeStream());
      }
      ONNXD_ASSIGN_OR_RETURN(device_constants_[id], ShareOnDevice(constant, *device_, *stream));
      if (!on_host[i] && constant.ElementCount() > kAlwaysOnHost) continue;
    }
    constants_[id] = ShareTensor(std::move(constant));
  }
  return stream == nullptr ? Status::Ok() : stream->Synchronize();
}

Status GraphExecutor::CompileNode(const Node& node) {
  if (IsCopyNode(node)) {
    CompiledNode compiled;
    compiled.kernel = MakeCopyKernel(node);
    compiled.provider = "session";
    compiled.side = node.op_type == "CopyToDevice" ? Side::kToDevice : Side::kToHost;
    copies_in_ = copies_in_ || compiled.side == Side::kToDevice;
    nodes_.push_back(std::move(compiled));
    return Status::Ok();
  }
  ONNXD_ASSIGN_OR_RETURN(auto control_flow, MakeControlFlow(node, options_));
  if (control_flow != nullptr) {
    CompiledNode compiled;
    compiled.control_flow = std::move(control_flow);
    compiled.provider = "session";
    nodes_.push_back(std::move(compiled));
    return Status::Ok();
  }
  ONNXD_ASSIGN_OR_RETURN(CompiledNode compiled,
                         MakeAssignedKernel(*graph_, node, options_.providers));
  nodes_.push_back(std::move(compiled));
  return Status::Ok();
}

size_t GraphExecutor::constant_bytes() const {
  size_t bytes = 0;
  for (const auto& [id, tensor] : constants_) bytes += tensor.bytes();
  return bytes;
}

namespace {

bool IsTold(const std::vector<Tensor>& into, size_t output) {
  return output < into.size() && into[output].defined();
}

// Of outputs that have memory of their own, with what blocks are rounded up by. `into`: as of
// RunOptions.
size_t HostBytes(const std::vector<Value>& outputs, const std::vector<Tensor>& into) {
  size_t bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!IsDense(outputs[i]) || IsTold(into, i)) continue;
    const Tensor& tensor = outputs[i].tensor();
    if (tensor.device() == nullptr) bytes += tensor.bytes();
  }
  return bytes + bytes / RecycledBuffers::kSteps;
}

bool Overlap(const Tensor& a, const Tensor& b) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a.raw());
  const auto begin_b = reinterpret_cast<uintptr_t>(b.raw());
  return begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

// Whether the output may be written there, of the memory of any input.
Status CheckInputsOf(const OutputSource& source, const Tensor& into,
                     std::span<const Value> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!IsDense(inputs[i]) || inputs[i].tensor().device() != nullptr ||
        !Overlap(inputs[i].tensor(), into)) {
      continue;
    }
    const auto* const begin = static_cast<const std::byte*>(inputs[i].tensor().raw());
    const bool fits = std::any_of(
        source.places.begin(), source.places.end(),
        [&](const auto& place) { return place.input == i && into.raw() == begin + place.bytes; });
    if (!fits) return InvalidArgument("in memory of an input that it does not take the place of");
  }
  return Status::Ok();
}

// Where the run is told to write outputs.
Status TakeToldPlaces(const Graph& graph, const ExecutionPlan& plan, std::span<const Value> inputs,
                      const std::vector<Tensor>& into, std::vector<Value>& outputs) {
  const auto name = [&](size_t i) -> const std::string& {
    return graph.value(graph.outputs[i]).name;
  };
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const OutputSource& source = plan.outputs[i];
    if (!IsTold(into, i) || source.kind == OutputSource::Kind::kValue) continue;
    if (into[i].type() != source.slot.type || !(into[i].shape() == source.shape) ||
        into[i].device() != nullptr || source.slot.on_device) {
      return InvalidArgument(
          StrCat("output '", name(i), "' is ", Describe(source.slot.type, source.shape),
                 source.slot.on_device ? " and stays on the device" : "", ", to be written to ",
                 Describe(into[i].type(), into[i].shape()),
                 into[i].device() != nullptr ? " on a device" : ""));
    }
    const Status fits = CheckInputsOf(source, into[i], inputs);
    if (!fits.ok()) return fits.WithContext(StrCat("output '", name(i), "' is to be written"));
    outputs[i] = into[i];
  }
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<GraphExecutor::PlanEntry>> GraphExecutor::FindOrMakePlan(
    std::span<const Value> inputs, const std::vector<bool>& outputs_on_device) const {
  const auto matches = [&](const ExecutionPlan& plan) {
    if (plan.outputs_on_device != outputs_on_device) return false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!plan.inputs[i].Fits(inputs[i])) return false;
    }
    return true;
  };
  {
    std::lock_guard lock(mutex_);
    for (auto entry = plans_.begin(); entry != plans_.end(); ++entry) {
      if (!matches(*(*entry)->plan)) continue;
      plans_.splice(plans_.begin(), plans_, entry);
      return plans_.front();
    }
  }
  const PlanRequest request{*graph_,
                            inputs_,
                            nodes_,
                            constants_,
                            device_constants_,
                            device_,
                            inputs,
                            outputs_on_device,
                            *options_.pool,
                            options_.max_run_bytes};
  auto made = std::make_shared<PlanEntry>();
  ONNXD_ASSIGN_OR_RETURN(made->plan, MakeExecutionPlan(request));
  std::lock_guard lock(mutex_);
  plans_.push_front(made);
  if (plans_.size() > options_.max_plans) plans_.pop_back();
  size_t arena = 1;
  for (const auto& entry : plans_) arena = std::max(arena, entry->plan->arena_bytes);
  arenas_.LimitTo(arena);
  LimitBuffers();
  return made;
}

void GraphExecutor::LimitBuffers() const {
  if (!keeps_output_memory_) return;
  size_t most = RecycledBuffers::kMostIdle;
  for (const auto& entry : plans_) most = std::max(most, entry->given_bytes);
  buffers_->LimitTo(most);
}

std::function<void()> GraphExecutor::KeepOutputMemory() const {
  std::lock_guard lock(mutex_);
  keeps_output_memory_ = true;
  return [weak = std::weak_ptr(buffers_)] {
    if (const auto buffers = weak.lock()) buffers->DropIdle();
  };
}

Result<std::unique_ptr<GraphExecutor::Context>> GraphExecutor::MakeContext(
    const ExecutionPlan& plan) const {
  auto context = std::make_unique<Context>();
  if (plan.uses_device) {
    ONNXD_ASSIGN_OR_RETURN(context->stream, device_->MakeStream());
    ONNXD_ASSIGN_OR_RETURN(context->device_arena, device_->Allocate(plan.device_arena_bytes));
  }
  context->recordings.resize(plan.recordable.size());
  context->cells.resize(plan.cells);
  context->operands.resize(plan.operands);
  context->states.resize(plan.steps.size());
  context->kept.resize(plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (step.prepared.make_state) {
      ONNXD_ASSIGN_OR_RETURN(context->states[i], step.prepared.make_state());
    }
    size_t position = step.first_operand;
    for (const auto* slots : {&step.inputs, &step.outputs}) {
      for (const Slot& slot : *slots) {
        void*& address = context->operands[position++];
        if (slot.kind == Slot::Kind::kDeviceArena) address = DeviceAddress(*context, slot.index);
        if (slot.kind == Slot::Kind::kCell) address = &context->cells[slot.index];
        if (slot.kind == Slot::Kind::kConstant) {
          address = OperandAddress(plan.constants[slot.index]);
        }
      }
    }
  }
  return context;
}

bool GraphExecutor::DropIdleContexts() const {
  std::vector<std::unique_ptr<Context>> dropped;  // declared before the lock: freed after it
  std::lock_guard lock(mutex_);
  for (const auto& entry : plans_) {
    std::move(entry->idle.begin(), entry->idle.end(), std::back_inserter(dropped));
    entry->idle.clear();
  }
  return !dropped.empty();
}

Status GraphExecutor::TakeArena(const ExecutionPlan& plan, Context& context) const {
  if (plan.arena_bytes == 0 && plan.arena_patches.empty()) return Status::Ok();
  // Tensors without elements have an address as well: null is an input that is absent.
  const size_t bytes = std::max<size_t>(plan.arena_bytes, 1);
  ONNXD_ASSIGN_OR_RETURN(context.arena, arenas_.Take(bytes, context.addressed));
  std::byte* const begin = context.arena.begin();
  if (begin == context.addressed) return Status::Ok();
  for (const auto& [position, offset] : plan.arena_patches) {
    context.operands[position] = begin + offset;
  }
  context.addressed = begin;
  return Status::Ok();
}

Result<std::vector<Value>> GraphExecutor::Run(std::span<const Value> inputs,
                                              const RunOptions& options) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueInfo& info = graph_->value(inputs_[i]);
    ONNXD_RETURN_IF_ERROR(CheckType(inputs[i], info.type, info.name));
    const Device* device = inputs[i].is_tensor() ? inputs[i].tensor().device() : nullptr;
    if (device != nullptr && device != device_) {
      return InvalidArgument(StrCat("input '", info.name, "' is on ", device->name(),
                                    ", where none of the nodes runs"));
    }
  }
  std::vector<bool> outputs_on_device;
  if (device_ != nullptr) {
    outputs_on_device = options.outputs_on_device;
    outputs_on_device.resize(graph_->outputs.size(), false);
  }
  ONNXD_ASSIGN_OR_RETURN(const auto entry, FindOrMakePlan(inputs, outputs_on_device));
  const ExecutionPlan& plan = *entry->plan;
  std::unique_ptr<Context> context;
  {
    std::lock_guard lock(mutex_);
    if (!entry->idle.empty()) {
      context = std::move(entry->idle.back());
      entry->idle.pop_back();
    }
  }
  if (context == nullptr) {
    auto made = MakeContext(plan);
    if (made.status().code() == StatusCode::kResourceExhausted && DropIdleContexts()) {
      made = MakeContext(plan);
    }
    ONNXD_ASSIGN_OR_RETURN(context, std::move(made));
  }
  ONNXD_RETURN_IF_ERROR(TakeArena(plan, *context));
  std::vector<Value> outputs(graph_->outputs.size());
  const TensorLimit limit(options_.max_run_bytes);
  const ThreadPool::Busy busy(*options_.pool);
  const DenormalsAsZero denormals(options_.denormals_as_zero);
  context->cell_bytes = 0;
  Status status = RunSteps(plan, *context, inputs, outputs, options);
  // Also after a failure: what the device still does is done in memory of the context.
  if (context->stream != nullptr) {
    const Status ended = Finish(plan, *context);
    if (status.ok()) status = ended;
  }
  if (status.ok()) TakeOutputs(plan, *context, inputs, outputs);
  for (Value& cell : context->cells) cell = Value();
  arenas_.Return(std::exchange(context->arena, {}));
  const size_t given = HostBytes(outputs, options.outputs_into);
  {
    std::lock_guard lock(mutex_);
    entry->idle.push_back(std::move(context));
    if (std::exchange(entry->given_bytes, given) != given) LimitBuffers();
  }
  if (!status.ok()) return status;
  return outputs;
}

Result<Tensor> GraphExecutor::MakeInput(DataType type, const Shape& shape) const {
  return copies_in_ ? MakePinned(type, shape) : buffers_->MakeTensor(type, shape);
}

Result<Value> GraphExecutor::MoveInput(const Value& value) const {
  if (!copies_in_ || !IsDense(value) || value.tensor().device() != nullptr) return value;
  ONNXD_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device_->MakeStream());
  ONNXD_ASSIGN_OR_RETURN(Tensor moved, CopyToDevice(value.tensor(), *device_, *stream));
  ONNXD_RETURN_IF_ERROR(stream->Synchronize());
  return Value(std::move(moved));
}

Result<Tensor> GraphExecutor::MakePinned(DataType type, const Shape& shape) const {
  const auto bytes = TensorBytes(type, shape.Validate().ok() ? shape.ElementCount() : -1);
  if (bytes && *bytes > 0) {
    auto pinned = device_->AllocatePinned(static_cast<size_t>(*bytes));
    if (pinned.ok()) {
      void* const memory = pinned->get();
      return Tensor::Wrap(type, shape, memory, *std::move(pinned));
    }
  }
  return Tensor::Create(type, shape);
}

Result<Value> GraphExecutor::MakeOutput(const OutputSource& source) const {
  const DataType type = source.slot.type;
  auto made = source.slot.on_device ? Tensor::CreateOn(*device_, type, source.shape)
              : source.from_device  ? MakePinned(type, source.shape)
                                    : buffers_->MakeTensor(type, source.shape);
  if (!made.ok()) return made.status();
  return Value(*std::move(made));
}

Status GraphExecutor::RunSteps(const ExecutionPlan& plan, Context& context,
                               std::span<const Value> inputs, std::vector<Value>& outputs,
                               const RunOptions& options) const {
  ONNXD_RETURN_IF_ERROR(TakeToldPlaces(*graph_, plan, inputs, options.outputs_into, outputs));
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    if (plan.outputs[i].kind == OutputSource::Kind::kValue || !outputs[i].absent()) continue;
    ONNXD_ASSIGN_OR_RETURN(outputs[i], MakeOutput(plan.outputs[i]));
  }
  for (const auto& [position, input] : plan.input_patches) {
    context.operands[position] = OperandAddress(inputs[input]);
  }
  for (const auto& [position, output] : plan.output_patches) {
    context.operands[position] = outputs[output].tensor().mutable_raw();
  }
  size_t recording = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (options.cancelled != nullptr && options.cancelled->load(std::memory_order_relaxed)) {
      return Cancelled("the request was cancelled");
    }
    if (options.deadline && std::chrono::steady_clock::now() > *options.deadline) {
      return DeadlineExceeded(StrCat("the deadline expired before ", Describe(*step.node)));
    }
    if (options.yield_every.count() > 0) YieldEvery(options.yield_every);
    if (step.waits) ONNXD_RETURN_IF_ERROR(context.stream->Synchronize());
    const bool begins = recording < plan.recordable.size() && plan.recordable[recording].begin == i;
    if (begins && options.profile == nullptr) {
      ONNXD_RETURN_IF_ERROR(RunRecorded(recording, plan, context, options));
      i = plan.recordable[recording++].end - 1;
      continue;
    }
    if (begins) ++recording;
    if (options.profile == nullptr) {
      ONNXD_RETURN_IF_ERROR(RunStep(i, plan, context, inputs, outputs, options));
      continue;
    }
    const size_t event = options.profile->events.size();
    options.profile->events.push_back({step.node, RunProfile::Clock::now(), {}});
    Status status = RunStep(i, plan, context, inputs, outputs, options);
    // The time of a step on a device is known only when it has ended.
    if (status.ok() && step.side != Side::kHost) status = context.stream->Synchronize();
    options.profile->events[event].end = RunProfile::Clock::now();
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

// The second run records, later ones replay, as long as inputs and outputs on the device are at the
// addresses of one of the last few recordings.
Status GraphExecutor::RunRecorded(size_t index, const ExecutionPlan& plan, Context& context,
                                  const RunOptions& options) const {
  constexpr size_t kMostGraphs = 4;
  constexpr int kMostUnused = 32;
  const RecordableSteps& steps = plan.recordable[index];
  Context::Recording& recording = context.recordings[index];
  Stream& stream = *context.stream;
  const auto run_steps = [&]() -> Status {
    for (size_t i = steps.begin; i < steps.end; ++i) {
      ONNXD_RETURN_IF_ERROR(RunStep(i, plan, context, {}, {}, options));
    }
    return Status::Ok();
  };
  if (!std::exchange(recording.ran, true) || recording.refused) return run_steps();
  std::vector<void*> addresses;
  for (const size_t position : steps.addresses) addresses.push_back(context.operands[position]);
  std::vector<Context::Recording::Graph>& graphs = recording.graphs;
  const auto known = std::find_if(graphs.begin(), graphs.end(),
                                  [&](const auto& graph) { return graph.addresses == addresses; });
  if (known != graphs.end()) {
    recording.unused = 0;
    std::rotate(known, known + 1, graphs.end());
    return stream.Replay(*graphs.back().graph);
  }
  if (recording.unused > kMostUnused) return run_steps();  // addresses do not come again
  Status status = stream.BeginRecording();
  if (status.ok()) {
    status = run_steps();
    auto graph = stream.EndRecording();
    if (status.ok()) status = graph.status();
    if (status.ok()) {
      ++recording.unused;
      if (graphs.size() == kMostGraphs) graphs.erase(graphs.begin());
      graphs.push_back({std::move(addresses), std::move(*graph)});
    }
  }
  recording.refused = !status.ok();
  if (recording.refused) return run_steps();
  return stream.Replay(*graphs.back().graph);
}

Status GraphExecutor::Finish(const ExecutionPlan& plan, Context& context) const {
  if (!plan.may_fail_on_device) return context.stream->Synchronize();
  ONNXD_ASSIGN_OR_RETURN(const DeviceFailure failure, context.stream->TakeFailure());
  if (failure.code == 0) return Status::Ok();
  const Step& step = plan.steps.at(failure.step);
  return step.prepared.on_failure(failure);
}

// The outputs that no step wrote where they belong.
void GraphExecutor::TakeOutputs(const ExecutionPlan& plan, const Context& context,
                                std::span<const Value> inputs, std::vector<Value>& outputs) {
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const OutputSource& source = plan.outputs[i];
    if (source.kind == OutputSource::Kind::kBuffer) continue;
    const Slot& slot = source.slot;
    const Value* held = slot.kind == Slot::Kind::kCell     ? &context.cells[slot.index]
                        : slot.kind == Slot::Kind::kInput  ? &inputs[slot.index]
                        : slot.kind == Slot::Kind::kOutput ? &outputs[slot.index]
                                                           : nullptr;
    if (source.kind == OutputSource::Kind::kValue) {
      outputs[i] = held != nullptr ? *held : plan.constants[slot.index];
      continue;
    }
    const void* from = held != nullptr ? held->tensor().raw()
                       : slot.kind == Slot::Kind::kConstant
                           ? plan.constants[slot.index].tensor().raw()
                           : context.arena.begin() + slot.index;
    Tensor& to = outputs[i].tensor();
    if (to.bytes() > 0) std::memcpy(to.mutable_raw(), from, to.bytes());
  }
}

Status GraphExecutor::RunStep(size_t index, const ExecutionPlan& plan, Context& context,
                              std::span<const Value> inputs, std::span<const Value> outputs,
                              const RunOptions& options) const {
  const Step& step = plan.steps[index];
  const Status status = step.planned ? RunPlanned(index, plan, context)
                                     : RunUnplanned(index, plan, context, inputs, outputs, options);
  for (const size_t cell : step.done_cells) {
    Value& value = context.cells[cell];
    if (IsDense(value)) context.cell_bytes -= static_cast<int64_t>(value.tensor().bytes());
    value = Value();
  }
  return status;
}

Status GraphExecutor::RunPlanned(size_t index, const ExecutionPlan& plan, Context& context) const {
  const Step& step = plan.steps[index];
  void* const* operands = context.operands.data() + step.first_operand;
  void* const scratch = step.side == Side::kDevice ? DeviceAddress(context, step.scratch_offset)
                                                   : context.arena.begin() + step.scratch_offset;
  return step.prepared.compute(KernelContext(
      {operands, step.inputs.size()}, {operands + step.inputs.size(), step.outputs.size()}, scratch,
      context.states[index].get(), options_.pool.get(), context.stream.get(),
      static_cast<uint32_t>(index)));
}

Status GraphExecutor::RunUnplanned(size_t index, const ExecutionPlan& plan, Context& context,
                                   std::span<const Value> inputs, std::span<const Value> outputs,
                                   const RunOptions& options) const {
  const Step& step = plan.steps[index];
  std::vector<Value> operands;
  std::vector<bool> constant;
  for (const Slot& slot : step.inputs) {
    constant.push_back(slot.kind == Slot::Kind::kConstant);
    switch (slot.kind) {
      case Slot::Kind::kAbsent:
        // A packed weight still has a type and a shape.
        operands.push_back(slot.type == DataType::kUndefined
                               ? Value()
                               : Value(Tensor::Wrap(slot.type, slot.shape, nullptr, nullptr)));
        break;
      case Slot::Kind::kCell:
        operands.push_back(context.cells[slot.index]);
        break;
      case Slot::Kind::kConstant:
        operands.emplace_back(plan.constants[slot.index].tensor().Reshaped(slot.shape));
        break;
      case Slot::Kind::kInput:
        operands.push_back(IsDense(inputs[slot.index])
                               ? Value(inputs[slot.index].tensor().Reshaped(slot.shape))
                               : inputs[slot.index]);
        break;
      case Slot::Kind::kOutput:
        operands.emplace_back(outputs[slot.index].tensor().Reshaped(slot.shape));
        break;
      case Slot::Kind::kArena:
        operands.emplace_back(
            Tensor::Wrap(slot.type, slot.shape, context.arena.begin() + slot.index, nullptr));
        break;
      case Slot::Kind::kDeviceArena:
        operands.emplace_back(Tensor::Wrap(slot.type, slot.shape,
                                           DeviceAddress(context, slot.index), nullptr, device_));
        break;
    }
  }
  std::vector<Value> results;
  const size_t input_count = step.node->inputs.size();
  if (step.control_flow != nullptr) {
    ONNXD_ASSIGN_OR_RETURN(
        results, step.control_flow->Run(std::span(operands).first(input_count),
                                        std::span(operands).subspan(input_count), options));
  } else {
    std::vector<ValueType> types;
    for (const ValueId id : step.node->outputs) {
      types.push_back(id == kNoValue ? ValueType{} : graph_->value(id).type);
    }
    PreparedNode::Request request{
        *step.kernel,          *step.node, operands, types, options_.pool->threads(),
        options_.max_run_bytes};
    request.buffers = buffers_.get();
    request.side = step.side;
    request.device = device_;
    if (step.side != Side::kHost) request.stream = context.stream.get();
    ONNXD_ASSIGN_OR_RETURN(results,
                           RunNode(request, constant, context.kept[index], *options_.pool));
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    if (step.outputs[i].kind != Slot::Kind::kCell) continue;
    const ValueInfo& info = graph_->value(step.node->outputs[i]);
    const Status status = CheckType(results[i], info.type, info.name);
    if (!status.ok()) return status.WithContext(Describe(*step.node));
    Value& cell = context.cells[step.outputs[i].index];
    cell = std::move(results[i]);
    // A view into the arena would be overwritten by later steps: cells own their elements.
    if (IsDense(cell) && cell.tensor().owner() == nullptr && cell.tensor().device() != nullptr) {
      const Tensor& view = cell.tensor();
      ONNXD_ASSIGN_OR_RETURN(Tensor copy, Tensor::CreateOn(*device_, view.type(), view.shape()));
      ONNXD_RETURN_IF_ERROR(
          context.stream->CopyWithin(copy.mutable_raw(), view.raw(), view.bytes()));
      cell = std::move(copy);
    } else if (IsDense(cell) && cell.tensor().owner() == nullptr) {
      ONNXD_ASSIGN_OR_RETURN(Tensor copy,
                             Tensor::Create(cell.tensor().type(), cell.tensor().shape()));
      if (copy.bytes() > 0) std::memcpy(copy.mutable_raw(), cell.tensor().raw(), copy.bytes());
      cell = std::move(copy);
    }
    if (IsDense(cell)) context.cell_bytes += static_cast<int64_t>(cell.tensor().bytes());
  }
  if (context.cell_bytes > options_.max_run_bytes) {
    return ResourceExhausted(StrCat(Describe(*step.node), ": what the run holds needs ",
                                    context.cell_bytes, " bytes, the limit is ",
                                    options_.max_run_bytes));
  }
  return Status::Ok();
}

}  // namespace onnxd
