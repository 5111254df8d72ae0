// SequenceSettings: a model that keeps state from one request of a sequence to the next: the
// section `sequence` of NAME/model.yaml. As Triton's sequence_batching with implicit state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/config/option_key.h"

namespace onnxd {

// An output that becomes an input of the sequence's next request.
struct SequenceState {
  std::string input, output;
  // Of the zeros that a sequence begins with. Empty: the input's, its free dimensions 1.
  std::vector<int64_t> shape;
  bool operator==(const SequenceState&) const = default;
};

struct SequenceSettings {
  bool enabled = false;
  int64_t idle_timeout_ms = 60'000;  // a sequence that nobody asked for so long is over
  int64_t max_sequences = 1'000;
  int64_t queue_requests = 64;  // of one sequence that wait for their turn
  // Inputs that the server sets; empty: the model has none. 1 in the first request of a sequence,
  // in its last, and in each; and its number.
  std::string start_input, end_input, ready_input, id_input;
  std::vector<SequenceState> states;
  bool operator==(const SequenceSettings&) const = default;
};

const std::vector<OptionKey<SequenceSettings>>& SequenceKeys();

// kInvalidArgument: an input that is set twice, or a state without input or output.
Status CheckSequence(const SequenceSettings& sequence);

// Of equal states equal.
std::string Describe(const std::vector<SequenceState>& states);

}  // namespace onnxd
