// How MakeExecutionPlan works: one planner for one plan, which goes through the nodes in their
// order. Nodes and values are in execution_plan.cc, elements that only move in plan_views.cc, the
// device in plan_device.cc, memory in plan_storage.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/ops/strided_view.h"
#include "runtime/session/execution_plan.h"

namespace onnxd {

// Not for several threads; `request` must outlive it.
class ExecutionPlanner {
 public:
  explicit ExecutionPlanner(const PlanRequest& request)
      : request_(request),
        graph_(request.graph),
        states_(request.graph.value_count()),
        last_use_(request.graph.value_count(), -1),
        is_output_(request.graph.value_count(), false),
        at_strides_(request.graph.value_count(), true) {}
  Result<std::shared_ptr<const ExecutionPlan>> Run();

 private:
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
    // How many copies to the host there were when this one was: 0 for others.
    int copied_to_host = 0;
  };

  struct Storage {
    size_t bytes;  // of each value that has it
    int first, last;
    bool on_device;
    size_t before = 0;  // bytes before the first value, which those that slid down take
  };

  // --- execution_plan.cc

  ValueState& state(ValueId id) { return states_[static_cast<size_t>(id)]; }
  void FindLastUses();
  void DefineInputs();
  void DefineConstant(ValueId id, const Tensor& tensor);
  // A constant that a kernel packed: its type and shape are known, its elements are gone.
  void DefinePacked(ValueId id);
  // `may_be_strided`: its outputs, for those who read them so.
  Status PlanNode(size_t position, bool may_be_strided);
  // Kernels make tables for their outputs, so what cannot be is refused before they prepare.
  Status CheckBytes(const Node& node, DataType type, const Shape& shape) const;
  // Computes the node now; false when that did not work, and it is planned like any other.
  bool Evaluate(const Node& node, const CompiledNode& compiled, bool reads_shape_only);
  Slot OperandSlot(ValueId id, bool on_device);
  Step NewStep(const Node& node, const CompiledNode& compiled);
  static Slot::Kind ArenaOf(bool on_device);
  Status AddUnplanned(const Node& node, const CompiledNode& compiled);
  Status AddPlanned(const Node& node, const CompiledNode& compiled, PreparedKernel prepared,
                    const std::vector<OperandInfo>& outputs,
                    const std::vector<std::optional<Shape>>& shapes);
  void AddStep(Step step, const CompiledNode& compiled);

  // --- plan_views.cc

  // Which values are read at any strides alone, or for their shapes: whatever moves elements for
  // them need not run.
  void FindReadAtStrides();
  // Lets the outputs of what only moves elements be elements of its input: as they are, or, for
  // those who read them so, at strides. False where it must compute.
  bool DefineViews(size_t position, std::span<const OperandInfo> outputs,
                   std::span<const Tensor* const> known, bool may_be_strided);
  // Makes inputs dense that the kernel does not take as they are.
  Status MakeDense(const Node& node, const CompiledNode& compiled, std::span<OperandInfo> inputs);
  Status MakeAllDense(const Node& node);
  // Plans the node that was left out because others read its elements where they are.
  Status MakeDense(ValueId id);
  // Lets output i be the bytes of the input it is a view of.
  bool TryView(const Node& node, const PreparedKernel& prepared, size_t i, ValueId id,
               DataType type);

  // --- plan_device.cc

  // Copies to the host whose results nothing but the caller reads: what they would copy stays.
  void FindStaying();
  // Its elements on the device; what is only there has a type and a shape besides.
  void DefineDeviceConstant(ValueId id, const Tensor& tensor);
  // Before a device kernel reads a constant that planning computed.
  Status BringConstants(const Node& node, const CompiledNode& compiled);
  // An input of the graph that is on the device is not read on the host.
  Status CheckSides(const Node& node, const CompiledNode& compiled);
  // Whether the output that this copy gives may stay on the device: its shape must be known.
  bool Stays(const Node& node);
  // The output is what was to be copied, or a copy of it on the device where that is not an output
  // buffer of its own.
  Status PlanStaying(const Node& node, const CompiledNode& compiled);
  // What a copy brings to the host is there once someone waited for the device after it.
  void WaitFor(ValueId id, Step& step);
  void WaitForInputs(const CompiledNode& compiled, Step& step);
  // Of an input or output of the run, on the device.
  static bool IsBound(const Slot& slot);
  static bool IsRecordable(const Step& step);
  std::vector<size_t> AddressesIn(size_t begin, size_t end) const;
  void FindRecordable();
  // Not where a device may still read them when the step has returned.
  void FindDoneCells();

  // --- plan_storage.cc

  // Extends the life of the storages that a step reads.
  void Touch(const Node& node);
  Slot NewCell(ValueId id);
  void ExtendForUses(ValueId id, int storage);
  void PlaceOutput(const Node& node, const PreparedKernel& prepared, size_t i, ValueId id,
                   DataType type, bool on_device);
  // Puts the output into an input's storage where the kernel may write it there; false where not.
  bool TakesOver(const Node& node, const PreparedKernel& prepared, size_t i, size_t bytes,
                 bool on_device, ValueState* output);
  // Whether another operand of the node lives in the same storage.
  bool ReadElsewhere(const Node& node, int storage, int except);
  Status DefineOutputs();
  // Offsets of the storages on one side; the bytes they take together.
  size_t PlaceSide(bool on_device, std::vector<size_t>& offsets) const;
  // Steps whose results nothing reads but for their shapes, which are known by now.
  void DropUnread();
  // No memory for those that no step has any more.
  void ForgetStorages();
  Status PlaceStorages();
  // OutputSource::places.
  void FindPlaces();
  bool IsReadBehind(size_t step, size_t input) const;
  void NumberOperands();

  static bool InArena(const Slot& slot) {
    return slot.kind == Slot::Kind::kArena || slot.kind == Slot::Kind::kDeviceArena;
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

}  // namespace onnxd
