#include "server/generation/decoder_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

using Role = DecoderPlan::Role;
using State = DecoderPlan::State;

Shape ShapeOf(const State& state, int64_t rows, int64_t past) {
  Shape shape;
  for (int axis = 0; axis < static_cast<int>(state.shape.size()); ++axis) {
    shape.Append(axis == state.batch_axis  ? rows
                 : axis == state.past_axis ? past
                                           : state.shape[static_cast<size_t>(axis)].value);
  }
  return shape;
}

Status CheckState(const State& state, const Value& value, int64_t rows, int64_t past) {
  const Shape expected = ShapeOf(state, rows, past);
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

}  // namespace

Result<DecoderState> EmptyState(const DecoderPlan& plan) {
  DecoderState state;
  for (const State& one : plan.states) {
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(one.type, ShapeOf(one, 1, 0)));
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

Result<Tensor> DecoderRows::Gather(const State& state, std::span<const Source> sources,
                                   int64_t past) const {
  const auto rows = static_cast<int64_t>(sources.size());
  const Shape shape = ShapeOf(state, rows, past);
  ONNXD_ASSIGN_OR_RETURN(Tensor joined, make_(state.type, shape));
  const bool grows = state.past_axis >= 0;
  const int behind = grows ? state.past_axis : state.batch_axis;
  const int64_t outer = shape.ElementCount(0, state.batch_axis);
  const int64_t middle = shape.ElementCount(state.batch_axis + 1, behind);
  const int64_t elements = shape.ElementCount(behind + 1, shape.rank());
  const size_t unit =
      static_cast<size_t>(elements) * static_cast<size_t>(DataTypeBits(state.type)) / 8;
  auto* const to = static_cast<std::byte*>(joined.mutable_raw());
  for (int64_t row = 0; row < rows; ++row) {
    const Source& source = sources[static_cast<size_t>(row)];
    const Shape& from_shape = source.tensor->shape();
    const int64_t from_rows = from_shape[state.batch_axis];
    const int64_t from_past = grows ? from_shape[state.past_axis] : 1;
    const int64_t length = grows ? source.length : 1, to_past = grows ? past : 1;
    const int64_t from_begin = pads_before() ? from_past - length : 0;
    const int64_t to_begin = pads_before() ? to_past - length : 0;
    const auto* const from = static_cast<const std::byte*>(source.tensor->raw());
    for (int64_t block = 0; block < outer * middle; ++block) {
      const int64_t before = block / middle, within = block % middle;
      const auto place = [&](int64_t all_rows, int64_t this_row, int64_t tokens) {
        return static_cast<size_t>(((before * all_rows + this_row) * middle + within) * tokens) *
               unit;
      };
      std::byte* const target = to + place(rows, row, to_past);
      const int64_t missing = pads_before() ? 0 : length;
      std::memset(target + static_cast<size_t>(missing) * unit, 0,
                  static_cast<size_t>(to_past - length) * unit);
      std::memcpy(
          target + static_cast<size_t>(to_begin) * unit,
          from + place(from_rows, source.row, from_past) + static_cast<size_t>(from_begin) * unit,
          static_cast<size_t>(length) * unit);
    }
  }
  return joined;
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
      std::vector<Source> sources;
      for (const size_t row : kept) {
        sources.push_back({&tensors_[i], static_cast<int64_t>(row), lengths_[row]});
      }
      for (const DecoderState& state : joining) {
        sources.push_back({&state.tensors[i], 0, state.length});
      }
      ONNXD_ASSIGN_OR_RETURN(tensors.emplace_back(), Gather(plan_.states[i], sources, past));
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
