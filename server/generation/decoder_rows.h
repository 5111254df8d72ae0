// DecoderRows: the states of sequences that take their steps together, and the inputs of runs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "server/batching/rows.h"
#include "server/generation/decoder_plan.h"

namespace onnxd {

// A sequence's states behind the tokens that were computed: one tensor for each of the plan's, of
// one row and as many tokens as there were.
struct DecoderState {
  std::vector<Tensor> tensors;
  int64_t length = 0;  // tokens
};

// Of a sequence that has none yet. Errors as Tensor::Create.
Result<DecoderState> EmptyState(const DecoderPlan& plan);

// The session's inputs for more tokens of one sequence, and the logits of the last of them,
// `logits` in number where the plan can say so. Errors as Tensor::Create.
Result<std::vector<Value>> PromptInputs(const DecoderPlan& plan, const DecoderState& past,
                                        std::span<const int64_t> tokens, int64_t logits = 1);

// What the outputs of that run leave. kInternal when a state has not the shape that it must.
Result<DecoderState> StateAfter(const DecoderPlan& plan, const std::vector<Value>& outputs,
                                int64_t length);

// Where states are between runs.
struct StateMemory {
  TensorMaker make;  // the tensors that rows are copied to, on the host
  // Brings these to where the session reads them; null: it does so in each run.
  std::function<Result<Tensor>(const Tensor&)> move = nullptr;
};

// `session`: outlives it.
StateMemory StateMemoryOf(const DecoderPlan& plan, const InferenceSession& session,
                          TensorMaker make);

class DecoderRows {
 public:
  DecoderRows(const DecoderPlan& plan, StateMemory memory)
      : plan_(plan), memory_(std::move(memory)) {}

  size_t size() const { return lengths_.size(); }
  // Tokens of each row that were computed.
  std::span<const int64_t> lengths() const { return lengths_; }

  // Those of `kept` stay, in that order, and these come behind them. Where it fails, nothing has
  // changed. Errors as of GatherStates and `memory`.
  Status Change(std::span<const size_t> kept, std::span<const DecoderState> joining);

  // The session's inputs for one more token of each row. Makes room for it, where the plan keeps
  // the size of states: errors as of Change.
  Result<std::vector<Value>> StepInputs(std::span<const int64_t> tokens);
  // Behind StepInputs: where that run is to write its outputs (RunOptions::outputs_into), which are
  // the states that it takes where the plan says so. When it fails, the tokens of the rows are there
  // as before.
  std::vector<Tensor> StatesAfter() const;
  // Each row is a token longer. kInternal when a state has not the shape that it must; then nothing
  // has changed.
  Status SetStates(const std::vector<Value>& outputs);

 private:
  // Of the plan's i-th state. Where steps write into it, there is memory behind it for as many
  // tokens as it has room for: each of them begins a token behind the one before.
  Result<Tensor> Joined(size_t i, std::span<const size_t> kept,
                        std::span<const DecoderState> joining, int64_t past) const;
  // Tokens that states have where the longest row has so many.
  int64_t RoomFor(int64_t length) const;
  bool pads_before() const { return plan_.joining == DecoderPlan::Joining::kPaddedBefore; }

  const DecoderPlan& plan_;
  const StateMemory memory_;
  std::vector<Tensor> tensors_;  // of the plan's states, all rows
  int64_t past_ = 0;             // of the tensors
  std::vector<int64_t> lengths_;
};

}  // namespace onnxd
