#include "server/config/sequence_settings.h"

#include <set>

#include "runtime/base/str_cat.h"

namespace onnxd {

const std::vector<OptionKey<SequenceSettings>>& SequenceKeys() {
  using S = SequenceSettings;
  static const std::vector<OptionKey<S>> keys = {
      SwitchKey("enabled", &S::enabled),
      NumberKey("idle_timeout_ms", &S::idle_timeout_ms, 1, 86'400'000),
      NumberKey("max_sequences", &S::max_sequences, 1, 1'000'000),
      NumberKey("queue_requests", &S::queue_requests, 1, 10'000),
      TextKey("start_input", &S::start_input),
      TextKey("end_input", &S::end_input),
      TextKey("ready_input", &S::ready_input),
      TextKey("id_input", &S::id_input),
  };
  return keys;
}

Status CheckSequence(const SequenceSettings& sequence) {
  std::set<std::string> inputs, outputs;
  const auto set_once = [&inputs](const std::string& input) {
    return input.empty() || inputs.insert(input).second
               ? Status::Ok()
               : InvalidArgument(StrCat("sequence: input '", input, "' is set twice"));
  };
  ONNXD_RETURN_IF_ERROR(set_once(sequence.start_input));
  ONNXD_RETURN_IF_ERROR(set_once(sequence.end_input));
  ONNXD_RETURN_IF_ERROR(set_once(sequence.ready_input));
  ONNXD_RETURN_IF_ERROR(set_once(sequence.id_input));
  for (const SequenceState& state : sequence.states) {
    if (state.input.empty() || state.output.empty()) {
      return InvalidArgument("sequence: a state needs both an input and an output");
    }
    ONNXD_RETURN_IF_ERROR(set_once(state.input));
    if (outputs.insert(state.output).second) continue;
    return InvalidArgument(StrCat("sequence: output '", state.output, "' is two states"));
  }
  return Status::Ok();
}

std::string Describe(const std::vector<SequenceState>& states) {
  std::string out;
  for (const SequenceState& state : states) {
    out += StrCat(state.input, "\n", state.output, "\n", StrJoin(state.shape, ","), "\n");
  }
  return out;
}

}  // namespace onnxd
