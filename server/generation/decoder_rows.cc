#include "server/generation/decoder_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "server/generation/gathered_states.h"

namespace onnxd {
namespace {

using Role = DecoderPlan::Role;
using State = DecoderPlan::State;

Status CheckState(const State& state, const Value& value, int64_t rows, int64_t past) {
  const Shape expected = ShapeOfState(state, rows, past);
  if (value.is_tensor() && value.tensor().type() == state.type &&
      value.tensor().shape() == expected) {
    return Status::Ok();
  }
  const std::string came = value.is_tensor()
                               ? Describe(value.tensor().type(), value.tensor().shape())
                               : std::string("no tensor");
  return Internal(StrCat("the state '", state.name, "' became ", came, ", expected ",
                         Describe(state.type, expected)));
}

Result<Value> NumbersAs(DataType type, const Shape& shape, std::span<const int64_t> numbers) {
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(DataType::kInt64, shape));
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data<int64_t>());
  if (type == DataType::kInt64) return Value(std::move(tensor));
  ONNXD_ASSIGN_OR_RETURN(Tensor converted, Converted(tensor, type));
  return Value(std::move(converted));
}

// What a run takes of `rows` sequences, each of as many tokens, whose past the tensors hold.
struct Inputs {
  std::span<const int64_t> tokens, positions, mask;
  int64_t rows = 0, past = 0;
  std::span<const Tensor> states;
  int64_t logits = 1;   // of so many tokens of each
  int64_t dropped = 0;  // of the past
};

Result<std::vector<Value>> MakeInputs(const DecoderPlan& plan, const Inputs& from) {
  const auto tokens = static_cast<int64_t>(from.tokens.size()) / from.rows;
  const Shape row{from.rows, tokens};
  const int64_t uses_cache = from.past > 0 ? 1 : 0;
  std::vector<Value> inputs;
  for (const DecoderPlan::Input& input : plan.inputs) {
    Result<Value> made = Value();
    switch (input.role) {
      case Role::kTokens:
        made = NumbersAs(input.type, row, from.tokens);
        break;
      case Role::kPositions:
        made = NumbersAs(input.type, row, from.positions);
        break;
      case Role::kMask:
        made = NumbersAs(input.type,
                         Shape{from.rows, static_cast<int64_t>(from.mask.size()) / from.rows},
                         from.mask);
        break;
      case Role::kUsesCache:
        made = NumbersAs(input.type, Shape{1}, {&uses_cache, 1});
        break;
      case Role::kLogitsToKeep:
        made = NumbersAs(input.type, Shape{}, {&from.logits, 1});
        break;
      case Role::kLastRows:
        made = NumbersAs(input.type, Shape{from.logits},
                         std::vector<int64_t>(static_cast<size_t>(from.logits), 0));
        break;
      case Role::kDropped:
        made = NumbersAs(input.type, Shape{from.dropped},
                         std::vector<int64_t>(static_cast<size_t>(from.dropped), 0));
        break;
      case Role::kState:
        made = Value(from.states[input.state]);
        break;
    }
    if (!made.ok()) return made.status();
    inputs.push_back(*std::move(made));
  }
  return inputs;
}

// Of one token in one of the blocks that lie side by side.
int64_t TokenElements(const State& state) {
  int64_t elements = 1;
  for (size_t axis = static_cast<size_t>(state.past_axis) + 1; axis < state.shape.size(); ++axis) {
    elements *= state.shape[axis].value;
  }
  return elements;
}

// Makes tensors with memory behind them for `tokens` more, of so many elements each.
TensorMaker WithTokensBehind(TensorMaker make, int64_t tokens, int64_t elements) {
  return [make = std::move(make), tokens, elements](DataType type,
                                                    const Shape& shape) -> Result<Tensor> {
    int64_t count = 0;
    const bool fits = shape.Validate().ok() && !__builtin_mul_overflow(tokens, elements, &count) &&
                      !__builtin_add_overflow(count, shape.ElementCount(), &count);
    if (!fits) return InvalidArgument(StrCat("a state of shape ", shape.ToString()));
    ONNXD_ASSIGN_OR_RETURN(Tensor all, make(type, Shape{count}));
    return Tensor::Wrap(type, shape, all.mutable_raw(), all.owner());
  };
}

}  // namespace

StateMemory StateMemoryOf(const DecoderPlan& plan, const InferenceSession& session,
                          TensorMaker make) {
  StateMemory memory{std::move(make)};
  if (!plan.states_on_device) return memory;
  memory.move = [&session](const Tensor& tensor) -> Result<Tensor> {
    ONNXD_ASSIGN_OR_RETURN(const Value moved, session.MoveInput(Value(tensor)));
    return moved.tensor();
  };
  return memory;
}

Result<DecoderState> EmptyState(const DecoderPlan& plan) {
  DecoderState state;
  for (const State& one : plan.states) {
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(one.type, ShapeOfState(one, 1, 0)));
    if (tensor.bytes() > 0) std::memset(tensor.mutable_raw(), 0, tensor.bytes());
    state.tensors.push_back(std::move(tensor));
  }
  return state;
}

Result<std::vector<Value>> PromptInputs(const DecoderPlan& plan, const DecoderState& past,
                                        std::span<const int64_t> tokens, int64_t logits) {
  std::vector<int64_t> positions(tokens.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i] = past.length + static_cast<int64_t>(i);
  }
  const std::vector<int64_t> mask(static_cast<size_t>(past.length) + tokens.size(), 1);
  return MakeInputs(plan, {tokens, positions, mask, 1, past.length, past.tensors, logits});
}

Result<DecoderState> StateAfter(const DecoderPlan& plan, const std::vector<Value>& outputs,
                                int64_t length) {
  DecoderState state;
  state.length = length;
  for (const State& one : plan.states) {
    ONNXD_RETURN_IF_ERROR(CheckState(one, outputs[one.output], 1, length));
    state.tensors.push_back(outputs[one.output].tensor());
  }
  return state;
}

int64_t DecoderRows::RoomFor(int64_t length) const {
  constexpr int64_t kRoom = 64;
  if (!plan_.keeps_size) return length;
  const int64_t room = (length + kRoom) / kRoom * kRoom;
  return std::max(length + 1, std::min(room, plan_.context_length));
}

Result<Tensor> DecoderRows::Joined(size_t i, std::span<const size_t> kept,
                                   std::span<const DecoderState> joining, int64_t past) const {
  std::vector<StateRow> sources;
  for (const size_t row : kept) {
    sources.push_back({tensors_[i], static_cast<int64_t>(row), lengths_[row]});
  }
  for (const DecoderState& state : joining) sources.push_back({state.tensors[i], 0, state.length});
  const State& state = plan_.states[i];
  TensorMaker make = memory_.make;
  if (plan_.in_place && pads_before() && state.past_axis >= 0) {
    int64_t longest = 0;
    for (const StateRow& source : sources) longest = std::max(longest, source.length);
    make = WithTokensBehind(make, past - longest, TokenElements(state));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor joined, GatherStates(state, sources, past, pads_before(), make));
  if (memory_.move == nullptr || joined.device() != nullptr) return joined;
  return memory_.move(joined);
}

Status DecoderRows::Change(std::span<const size_t> kept, std::span<const DecoderState> joining) {
  std::vector<int64_t> lengths;
  for (const size_t row : kept) lengths.push_back(lengths_[row]);
  for (const DecoderState& state : joining) lengths.push_back(state.length);
  const int64_t past =
      lengths.empty() ? 0 : RoomFor(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<Tensor> tensors;
  if (kept.empty() && joining.size() == 1 && past == joining[0].length) {
    tensors = joining[0].tensors;
  } else if (!lengths.empty()) {
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      ONNXD_ASSIGN_OR_RETURN(tensors.emplace_back(), Joined(i, kept, joining, past));
    }
  }
  tensors_ = std::move(tensors);
  lengths_ = std::move(lengths);
  past_ = past;
  return Status::Ok();
}

Result<std::vector<Value>> DecoderRows::StepInputs(std::span<const int64_t> tokens) {
  const bool is_full = std::find(lengths_.begin(), lengths_.end(), past_) != lengths_.end();
  if (plan_.keeps_size && is_full) {
    std::vector<size_t> all(lengths_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    ONNXD_RETURN_IF_ERROR(Change(all, {}));
  }
  const auto width = static_cast<size_t>(plan_.keeps_size ? past_ : past_ + 1);
  std::vector<int64_t> mask(lengths_.size() * width, 0);
  for (size_t row = 0; row < lengths_.size(); ++row) {
    const auto own = static_cast<size_t>(lengths_[row]) + 1;
    const size_t begin = row * width + (pads_before() ? width - own : 0);
    std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(begin), own, 1);
  }
  const int64_t dropped = plan_.keeps_size && pads_before() ? 1 : 0;
  return MakeInputs(plan_, {tokens, lengths_, mask, static_cast<int64_t>(lengths_.size()), past_,
                            tensors_, 1, dropped});
}

std::vector<Tensor> DecoderRows::StatesAfter() const {
  std::vector<Tensor> places;
  if (!plan_.in_place) return places;
  for (size_t i = 0; i < plan_.states.size(); ++i) {
    const State& state = plan_.states[i];
    if (state.past_axis < 0) continue;
    if (places.size() <= state.output) places.resize(state.output + 1);
    const Tensor& before = tensors_[i];
    const size_t shift = pads_before() ? static_cast<size_t>(TokenElements(state)) *
                                             static_cast<size_t>(DataTypeBits(state.type)) / 8
                                       : 0;
    auto* const begin = static_cast<std::byte*>(const_cast<void*>(before.raw()));
    places[state.output] = Tensor::Wrap(state.type, before.shape(), begin + shift, before.owner());
  }
  return places;
}

Status DecoderRows::SetStates(const std::vector<Value>& outputs) {
  const int64_t past = plan_.keeps_size ? past_ : past_ + 1;
  std::vector<Tensor> tensors;
  for (const State& state : plan_.states) {
    ONNXD_RETURN_IF_ERROR(
        CheckState(state, outputs[state.output], static_cast<int64_t>(lengths_.size()), past));
    tensors.push_back(outputs[state.output].tensor());
  }
  tensors_ = std::move(tensors);
  for (int64_t& length : lengths_) ++length;
  past_ = past;
  return Status::Ok();
}

}  // namespace onnxd
