// ExecutionPlan: the steps of a graph for one set of input shapes, with every address decided.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/session/compiled_node.h"

namespace onnxd {

// Where an operand lives during a run.
struct Slot {
  enum class Kind {
    kAbsent,
    kConstant,     // a tensor of the session or the plan, by index into ExecutionPlan::constants
    kInput,        // elements (or the Value) of a graph input
    kOutput,       // elements of a graph output's own buffer
    kArena,        // elements at an offset
    kDeviceArena,  // the same in the device's memory
    kCell,         // a Value of the context: not dense, or of a shape that the data decide
  };
  Kind kind = Kind::kAbsent;
  size_t index = 0;        // of the constant, input, output or cell; the offset in the arena
  int64_t offset = 0;      // while planning: bytes from where the first value of a storage begins
  bool on_device = false;  // kInput, kOutput: its elements are in the device's memory
  DataType type = DataType::kUndefined;
  Shape shape;  // of dense operands
};

struct Step {
  const Node* node;
  const Kernel* kernel;             // null for control flow
  const ControlFlow* control_flow;  // null for kernels
  PreparedKernel prepared;          // of planned steps
  bool planned;                     // false: shapes are known only when the step is reached
  Side side;
  bool waits = false;  // it reads on the host what a copy before it brings there
  std::vector<Slot> inputs, outputs;
  std::vector<size_t> done_cells;  // that no later step reads, and no output is
  size_t first_operand = 0;        // into ExecutionContext::operands: inputs, then outputs
  size_t scratch_offset = 0;
};

// A graph output that no step writes directly: taken from another slot when the run ends.
struct OutputSource {
  enum class Kind { kBuffer, kCopy, kValue };
  Kind kind = Kind::kBuffer;
  Slot slot;                 // kBuffer: the output's own buffer, which steps wrote
  Shape shape;               // of dense outputs
  bool from_device = false;  // kBuffer: a copy from there fills it
  // kBuffer: inputs that no later step reads than the one that writes it, and in whose memory it may
  // begin so many bytes behind them.
  struct Place {
    size_t input, bytes;
  };
  std::vector<Place> places;
};

// An input that a plan is for. kUndefined: no tensor.
struct PlannedInput {
  DataType type = DataType::kUndefined;
  Shape shape;
  bool on_device = false;

  bool Fits(const Value& value) const {
    if (!value.is_tensor()) return type == DataType::kUndefined;
    return value.tensor().type() == type && value.tensor().shape() == shape &&
           (value.tensor().device() != nullptr) == on_device;
  }
};

// Steps [begin, end) that only enqueue kernels on addresses of the context, or of inputs and
// outputs on the device: what they enqueue is the same whenever these are.
struct RecordableSteps {
  size_t begin, end;
  std::vector<size_t> addresses;  // positions in the operand array of those inputs and outputs
};

struct ExecutionPlan {
  std::vector<PlannedInput> inputs;     // one per graph input
  std::vector<bool> outputs_on_device;  // RunOptions; with a device one per graph output
  std::vector<Step> steps;
  std::vector<Value> constants;  // tensors
  std::vector<OutputSource> outputs;
  size_t arena_bytes = 0;
  size_t device_arena_bytes = 0;
  bool uses_device = false;
  bool may_fail_on_device = false;  // a planned step has PreparedKernel::on_failure
  size_t cells = 0;
  size_t operands = 0;
  std::vector<RecordableSteps> recordable;
  // Positions in the operand array that each run fills with the addresses of inputs and outputs.
  std::vector<std::pair<size_t, size_t>> input_patches, output_patches;
  // Positions there that point to an offset in the arena.
  std::vector<std::pair<size_t, size_t>> arena_patches;
};

struct PlanRequest {
  const Graph& graph;
  std::span<const ValueId> inputs;  // graph inputs, then captures in use
  std::span<const CompiledNode> nodes;
  const std::map<ValueId, Tensor>& constants;
  const std::map<ValueId, Tensor>& device_constants;  // the same, as device kernels read them
  Device* device;                                     // null: no node runs on one
  std::span<const Value> values;                      // the inputs of the run that asks
  const std::vector<bool>& outputs_on_device;         // as in the plan
  ThreadPool& pool;
  int64_t max_bytes;
};

// Constants that planning computes for device kernels are brought there. kResourceExhausted when
// the arena would exceed max_bytes; kInvalidArgument when shapes do not fit
// the graph (the message names the node).
Result<std::shared_ptr<const ExecutionPlan>> MakeExecutionPlan(const PlanRequest& request);

}  // namespace onnxd
