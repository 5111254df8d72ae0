// Elements that nodes only move: as views, where those who read them take strides.
#include <algorithm>

#include "runtime/graph/shape_nodes.h"
#include "runtime/session/execution_planner.h"

namespace onnxd {
namespace {

// Where views of elements may begin: kernels count on such addresses.
constexpr size_t kAlignment = 64;

// Views of views: making the last one dense makes all of them so.
constexpr int kMostViews = 32;

}  // namespace

void ExecutionPlanner::FindReadAtStrides() {
  for (const ValueId id : graph_.outputs) at_strides_[static_cast<size_t>(id)] = false;
  for (size_t n = graph_.nodes.size(); n-- > 0;) {
    const Node& node = graph_.nodes[n];
    if (ReadsOnlyShapes(node)) continue;
    const Kernel* kernel = request_.nodes[n].kernel.get();
    const bool passes_on =
        MovesElements(node) && std::all_of(node.outputs.begin(), node.outputs.end(), [&](auto id) {
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

bool ExecutionPlanner::DefineViews(size_t position, std::span<const OperandInfo> outputs,
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
    s.slot.offset += view.offset * static_cast<int64_t>(bytes);
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

Status ExecutionPlanner::MakeDense(const Node& node, const CompiledNode& compiled,
                                   std::span<OperandInfo> inputs) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNoValue || !state(id).view) continue;
    if (state(id).strides && compiled.kernel->TakesStrides(i)) continue;
    ONNXD_RETURN_IF_ERROR(MakeDense(id));
    inputs[i].strides = nullptr;
  }
  return Status::Ok();
}

Status ExecutionPlanner::MakeAllDense(const Node& node) {
  for (const auto* list : {&node.inputs, &node.captures}) {
    for (const ValueId id : *list) {
      if (id != kNoValue) ONNXD_RETURN_IF_ERROR(MakeDense(id));
    }
  }
  return Status::Ok();
}

Status ExecutionPlanner::MakeDense(ValueId id) {
  if (!state(id).view) return Status::Ok();
  const auto position = static_cast<size_t>(state(id).producer);
  const Node& node = graph_.nodes[position];
  ONNXD_RETURN_IF_ERROR(MakeDense(node.inputs[0]));
  for (const ValueId output : node.outputs) {
    if (output != kNoValue) state(output) = ValueState{};
  }
  return PlanNode(position, false);
}

bool ExecutionPlanner::TryView(const Node& node, const PreparedKernel& prepared, size_t i,
                               ValueId id, DataType type) {
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

}  // namespace onnxd
