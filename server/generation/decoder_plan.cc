#include "server/generation/decoder_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

using Role = DecoderPlan::Role;

constexpr std::array<std::pair<std::string_view, Role>, 8> kNames = {{
    {"input_ids", Role::kTokens},
    {"attention_mask", Role::kMask},
    {"position_ids", Role::kPositions},
    {"use_cache_branch", Role::kUsesCache},
    {"num_logits_to_keep", Role::kLogitsToKeep},
    {"logits_to_keep", Role::kLogitsToKeep},
    {LastRows::kInput, Role::kLastRows},
    {DroppedTokens::kInput, Role::kDropped},
}};
constexpr const char* kLogits = "logits";
constexpr std::string_view kPast = "past";

bool IsState(const std::string& input) {
  return input.starts_with(kPast) && input.size() > kPast.size() &&
         (input[kPast.size()] == '_' || input[kPast.size()] == '.');
}

// Of the output with what the state is afterwards: past_key_values.0.key -> present.0.key, or
// present_key_values.0.key; past_0 -> present_0.
std::vector<std::string> PresentNames(const std::string& input) {
  constexpr std::string_view kKeyValues = "past_key_values";
  std::vector<std::string> names = {StrCat("present", input.substr(kPast.size()))};
  if (input.starts_with(kKeyValues)) {
    names.push_back(StrCat("present", input.substr(kKeyValues.size())));
  }
  return names;
}

std::optional<size_t> PlaceOf(const std::vector<std::string>& names,
                              const std::vector<TensorSignature>& signature) {
  const auto found = std::find_if(signature.begin(), signature.end(), [&](const auto& one) {
    return std::find(names.begin(), names.end(), one.name) != names.end();
  });
  if (found == signature.end()) return std::nullopt;
  return static_cast<size_t>(found - signature.begin());
}

Status CheckTokens(const TensorSignature& input) {
  const bool is_whole = input.type.is_tensor() && (input.type.element == DataType::kInt64 ||
                                                   input.type.element == DataType::kInt32);
  const size_t rank = input.type.shape ? input.type.shape->size() : 2;
  if (is_whole && rank == 2) return Status::Ok();
  return InvalidArgument(StrCat("input '", input.name, "' is ", ToString(input.type),
                                ", expected whole numbers [batch, tokens]"));
}

// The axes of the batch and of the tokens before.
Status FindAxes(const std::string& batch, DecoderPlan::State& state) {
  std::vector<int> free;
  std::optional<int> named;
  for (size_t axis = 0; axis < state.shape.size(); ++axis) {
    const Dimension& dimension = state.shape[axis];
    if (dimension.known()) continue;
    if (!batch.empty() && dimension.symbol == batch && !named) named = static_cast<int>(axis);
    free.push_back(static_cast<int>(axis));
  }
  if (free.empty()) {
    return Unimplemented(StrCat("state '", state.name, "' has no free dimension for the batch"));
  }
  state.batch_axis = named.value_or(free[0]);
  std::erase(free, state.batch_axis);
  if (free.size() > 1 || (!free.empty() && free[0] < state.batch_axis)) {
    return Unimplemented(StrCat("state '", state.name, "' has free dimensions besides those of ",
                                "the batch and of the tokens behind it"));
  }
  if (!free.empty()) state.past_axis = free[0];
  return Status::Ok();
}

}  // namespace

bool DecoderPlan::has_mask() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const Input& input) { return input.role == Role::kMask; });
}

void DecoderPlan::AskOf(SessionOptions& options) {
  options.last_rows = {kLogits, std::string(kPast)};
  options.dropped_tokens = {std::string(kPast)};
}

std::vector<bool> DecoderPlan::OutputsOnDevice() const {
  std::vector<bool> stay;
  if (!states_on_device) return stay;
  for (const State& one : states) {
    stay.resize(std::max(stay.size(), one.output + 1), false);
    stay[one.output] = true;
  }
  return stay;
}

bool IsDecoder(const std::vector<TensorSignature>& inputs) {
  const bool has_states = std::any_of(inputs.begin(), inputs.end(), [](const auto& input) {
    return IsState(input.name) && input.type.is_tensor();
  });
  return has_states && PlaceOf({"input_ids"}, inputs).has_value();
}

Result<DecoderPlan> MakeDecoderPlan(const std::vector<TensorSignature>& inputs,
                                    const std::vector<TensorSignature>& outputs) {
  if (!IsDecoder(inputs)) {
    return InvalidArgument("it has no inputs 'input_ids' and 'past...', which generation needs");
  }
  const auto& ids = inputs[*PlaceOf({"input_ids"}, inputs)];
  ONNXD_RETURN_IF_ERROR(CheckTokens(ids));
  std::string batch;
  if (ids.type.shape && !(*ids.type.shape)[0].known()) batch = (*ids.type.shape)[0].symbol;

  DecoderPlan plan;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSignature& input = inputs[i];
    const auto* const known = std::find_if(
        kNames.begin(), kNames.end(), [&](const auto& name) { return name.first == input.name; });
    if (known != kNames.end()) {
      const Role role = known->second;
      if (role == Role::kMask || role == Role::kPositions) {
        ONNXD_RETURN_IF_ERROR(CheckTokens(input));
      }
      if (!input.type.is_tensor() || !IsConvertible(input.type.element)) {
        return InvalidArgument(
            StrCat("input '", input.name, "' of type ", ToString(input.type), " takes no tokens"));
      }
      plan.inputs.push_back({role, input.type.element});
      continue;
    }
    if (!IsState(input.name) || !input.type.is_tensor() || !input.type.shape) {
      return Unimplemented(StrCat("input '", input.name, "' of type ", ToString(input.type),
                                  " is neither tokens nor a state"));
    }
    DecoderPlan::State state{input.name, i, 0, input.type.element, *input.type.shape};
    const auto output = PlaceOf(PresentNames(input.name), outputs);
    if (!output) {
      return InvalidArgument(StrCat("there is no output '", PresentNames(input.name)[0],
                                    "' for the state '", input.name, "'"));
    }
    state.output = *output;
    ONNXD_RETURN_IF_ERROR(FindAxes(batch, state));
    plan.inputs.push_back({Role::kState, state.type, plan.states.size()});
    plan.states.push_back(std::move(state));
  }
  const auto logits = PlaceOf({kLogits}, outputs);
  const bool has_logits =
      logits && outputs[*logits].type.is_tensor() && IsFloatingPoint(outputs[*logits].type.element);
  if (!has_logits) {
    return InvalidArgument(
        StrCat("it has no output '", kLogits, "' [batch, tokens, vocabulary] of floats"));
  }
  plan.logits = *logits;
  return plan;
}

}  // namespace onnxd
