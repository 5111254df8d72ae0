// SequencePlan: which of a stateful model's inputs are its client's, and what the server gives the
// others.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/config/sequence_settings.h"
#include "server/inference/sequence_control.h"
#include "server/models/bound_shape.h"

namespace onnxd {

struct SequencePlan {
  enum class Role { kClient, kState, kStart, kEnd, kReady, kId };
  struct Input {
    Role role;
    size_t index;  // of the client's inputs, or of the states
  };
  struct State {
    size_t input, output;  // of the session
    SymbolicShape shape;   // of the zeros it begins with
  };
  std::vector<TensorSignature> signature;  // of the session's inputs
  std::vector<Input> inputs;               // one for each of them
  std::vector<State> states;
  std::vector<size_t> client_inputs, client_outputs;  // of the session
};

// kInvalidArgument when the settings name an input or output that is not there or of another type
// than its like, or one whose rank nobody knows and the settings do not say.
Result<std::shared_ptr<const SequencePlan>> MakeSequencePlan(
    const SequenceSettings& settings, const std::vector<TensorSignature>& inputs,
    const std::vector<TensorSignature>& outputs);

// The session's inputs of one request. `states` is empty at the beginning of a sequence. What only
// the client's inputs decide of a shape they do, by the dimension's symbol; else it is 1.
// kInvalidArgument when the model takes a number as the sequence's name and it is a text, or the
// other way; kResourceExhausted.
Result<std::vector<Value>> InputsOfTurn(const SequencePlan& plan, std::vector<Value> client,
                                        std::span<const Value> states,
                                        const SequenceControl& control);

// Of the session's outputs; copies, where they are parts of a batch. kResourceExhausted.
Result<std::vector<Value>> StatesOf(const SequencePlan& plan, const std::vector<Value>& outputs);

}  // namespace onnxd
