// Where results live, and for how long.
#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/session/execution_planner.h"
#include "runtime/session/memory_planner.h"

namespace onnxd {

void ExecutionPlanner::Touch(const Node& node) {
  for (const auto* list : {&node.inputs, &node.captures}) {
    for (const ValueId id : *list) {
      if (id == kNoValue || state(id).storage < 0) continue;
      Storage& storage = storages_[static_cast<size_t>(state(id).storage)];
      storage.last = std::max(storage.last, step_);
    }
  }
}

Slot ExecutionPlanner::NewCell(ValueId id) {
  Slot slot;
  slot.kind = Slot::Kind::kCell;
  slot.index = plan_->cells++;
  slot.type = graph_.value(id).type.element;
  state(id).slot = slot;
  return slot;
}

void ExecutionPlanner::FindDoneCells() {
  constexpr size_t kStays = std::numeric_limits<size_t>::max();
  std::vector<size_t> last(plan_->cells, kStays);
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    for (const auto* slots : {&plan_->steps[i].inputs, &plan_->steps[i].outputs}) {
      for (const Slot& slot : *slots) {
        if (slot.kind == Slot::Kind::kCell) last[slot.index] = i;
      }
    }
  }
  for (const OutputSource& output : plan_->outputs) {
    if (output.slot.kind == Slot::Kind::kCell) last[output.slot.index] = kStays;
  }
  for (size_t cell = 0; cell < last.size(); ++cell) {
    if (last[cell] != kStays) plan_->steps[last[cell]].done_cells.push_back(cell);
  }
}

void ExecutionPlanner::ExtendForUses(ValueId id, int storage) {
  Storage& target = storages_[static_cast<size_t>(storage)];
  target.last = std::max(target.last, last_use_[static_cast<size_t>(id)]);
}

void ExecutionPlanner::PlaceOutput(const Node& node, const PreparedKernel& prepared, size_t i,
                                   ValueId id, DataType type, bool on_device) {
  ValueState& s = state(id);
  s.slot.type = type;
  s.slot.shape = *s.shape;
  const size_t bytes = static_cast<size_t>(TensorBytes(type, s.shape->ElementCount()).value_or(0));
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
  if (!TakesOver(node, prepared, i, bytes, on_device, &s)) {
    s.storage = static_cast<int>(storages_.size());
    storages_.push_back({bytes, step_, step_, on_device});
  }
  ExtendForUses(id, s.storage);
}

bool ExecutionPlanner::TakesOver(const Node& node, const PreparedKernel& prepared, size_t i,
                                 size_t bytes, bool on_device, ValueState* output) {
  std::vector<PreparedKernel::Slide> ways = prepared.slides;
  for (const auto& [to, from] : prepared.in_place) ways.push_back({to, from, 0});
  for (const auto& [to, from, slid] : ways) {
    if (static_cast<size_t>(to) != i) continue;
    const ValueState& source = state(node.inputs[static_cast<size_t>(from)]);
    if (source.storage < 0 || source.view) continue;
    Storage& storage = storages_[static_cast<size_t>(source.storage)];
    if (storage.on_device != on_device || storage.last > step_ || storage.bytes != bytes ||
        ReadElsewhere(node, source.storage, from)) {
      continue;
    }
    output->storage = source.storage;
    output->slot.offset = source.slot.offset - static_cast<int64_t>(slid);
    storage.before = std::max(storage.before, static_cast<size_t>(-output->slot.offset));
    return true;
  }
  return false;
}

bool ExecutionPlanner::ReadElsewhere(const Node& node, int storage, int except) {
  for (size_t j = 0; j < node.inputs.size(); ++j) {
    if (static_cast<int>(j) != except && node.inputs[j] != kNoValue &&
        state(node.inputs[j]).storage == storage) {
      return true;
    }
  }
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return id != kNoValue && state(id).storage == storage; });
}

Status ExecutionPlanner::DefineOutputs() {
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const ValueId id = graph_.outputs[i];
    const ValueState& s = state(id);
    OutputSource source;
    source.slot = s.slot;
    source.from_device = s.copied_to_host > 0;
    if (InArena(s.slot)) source.slot.index = static_cast<size_t>(s.storage);
    const bool is_device_input = s.slot.kind == Slot::Kind::kInput && s.slot.on_device;
    if (is_device_input && !request_.outputs_on_device[i]) {
      return InvalidArgument(StrCat("output '", graph_.value(id).name, "' is an input that is on ",
                                    request_.device->name()));
    }
    const bool is_own = s.slot.kind == Slot::Kind::kOutput && s.slot.index == i;
    if (s.slot.kind == Slot::Kind::kCell || !s.dense || (s.slot.on_device && !is_own)) {
      source.kind = OutputSource::Kind::kValue;
    } else if (is_own) {
      source.shape = *s.shape;
    } else {
      source.kind = OutputSource::Kind::kCopy;
      source.shape = *s.shape;
    }
    plan_->outputs.push_back(std::move(source));
  }
  return Status::Ok();
}

size_t ExecutionPlanner::PlaceSide(bool on_device, std::vector<size_t>& offsets) const {
  std::vector<StorageRequest> requests;
  std::vector<size_t> which;
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (storages_[i].on_device != on_device) continue;
    const Storage& storage = storages_[i];
    requests.push_back({storage.before + storage.bytes, storage.first, storage.last});
    which.push_back(i);
  }
  const MemoryPlan memory = PlanMemory(requests);
  for (size_t i = 0; i < which.size(); ++i) {
    offsets[which[i]] = memory.offsets[i] + storages_[which[i]].before;
  }
  return memory.arena_bytes;
}

void ExecutionPlanner::DropUnread() {
  std::vector<bool> read(storages_.size(), false);
  const auto note = [&](const Slot& slot) {
    if (InArena(slot)) read[slot.index] = true;
  };
  for (const OutputSource& output : plan_->outputs) note(output.slot);
  std::vector<Step>& steps = plan_->steps;
  std::vector<bool> dropped(steps.size(), false);
  for (size_t i = steps.size(); i-- > 0;) {
    const Step& step = steps[i];
    dropped[i] = step.planned && !step.waits &&
                 (step.side == Side::kHost || step.side == Side::kDevice) &&
                 std::all_of(step.outputs.begin(), step.outputs.end(), [&](const Slot& slot) {
                   return slot.kind == Slot::Kind::kAbsent || (InArena(slot) && !read[slot.index]);
                 });
    if (!dropped[i]) std::for_each(step.inputs.begin(), step.inputs.end(), note);
  }
  size_t kept = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (dropped[i]) continue;
    if (kept != i) steps[kept] = std::move(steps[i]);
    ++kept;
  }
  if (kept == steps.size()) return;
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(kept), steps.end());
  ForgetStorages();
}

void ExecutionPlanner::ForgetStorages() {
  std::vector<bool> used(storages_.size(), false);
  const auto note = [&](const Slot& slot) {
    if (InArena(slot)) used[slot.index] = true;
  };
  for (const OutputSource& output : plan_->outputs) note(output.slot);
  for (const Step& step : plan_->steps) {
    std::for_each(step.inputs.begin(), step.inputs.end(), note);
    std::for_each(step.outputs.begin(), step.outputs.end(), note);
    if (step.planned && step.prepared.scratch_bytes > 0) used[step.scratch_offset] = true;
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (!used[i]) storages_[i].bytes = 0;
  }
}

Status ExecutionPlanner::PlaceStorages() {
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
    if (InArena(slot)) slot.index = offsets[slot.index] + static_cast<size_t>(slot.offset);
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

bool ExecutionPlanner::IsReadBehind(size_t step, size_t input) const {
  const auto reads = [input](const Slot& slot) {
    return slot.kind == Slot::Kind::kInput && slot.index == input;
  };
  const auto& own = plan_->steps[step].inputs;
  if (std::count_if(own.begin(), own.end(), reads) > 1) return true;
  for (size_t i = step + 1; i < plan_->steps.size(); ++i) {
    const auto& slots = plan_->steps[i].inputs;
    if (std::any_of(slots.begin(), slots.end(), reads)) return true;
  }
  return std::any_of(plan_->outputs.begin(), plan_->outputs.end(),
                     [&](const OutputSource& output) { return reads(output.slot); });
}

void ExecutionPlanner::FindPlaces() {
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    const Step& step = plan_->steps[i];
    if (!step.planned || step.side != Side::kHost) continue;
    std::vector<PreparedKernel::Shift> ways = step.prepared.shifts;
    for (const auto& [to, from] : step.prepared.in_place) ways.push_back({to, from, 0});
    for (const auto& [to, from, shift] : ways) {
      const Slot& input = step.inputs[static_cast<size_t>(from)];
      const Slot& output = step.outputs[static_cast<size_t>(to)];
      if (input.kind != Slot::Kind::kInput || output.kind != Slot::Kind::kOutput ||
          !(input.shape == output.shape) || input.type != output.type ||
          IsReadBehind(i, input.index)) {
        continue;
      }
      plan_->outputs[output.index].places.push_back({input.index, shift});
    }
  }
}

void ExecutionPlanner::NumberOperands() {
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

}  // namespace onnxd
