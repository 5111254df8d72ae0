// DecoderPlan: which inputs and outputs of a model that writes token after token are what, as
// exporters (optimum, transformers.js, onnxruntime-genai) name them:
//
//   input_ids       [batch, tokens]           the tokens that come now
//   attention_mask  [batch, past + tokens]    1 where a token is
//   position_ids    [batch, tokens]
//   past...         [.., batch, .., past, ..] a state: what was computed of the tokens before, or
//                                             of any number of them in a tensor of one size
//   -> logits       [batch, tokens, vocabulary]
//      present...   the states with these tokens
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/session/inference_session.h"

namespace onnxd {

struct DecoderPlan {
  enum class Role {
    kTokens,
    kMask,
    kPositions,
    kUsesCache,
    kLogitsToKeep,  // how many logits, of the last tokens, are computed
    kLastRows,      // the same, said by its extent
    kDropped,       // by its extent, too: how many of the tokens before count no more
    kState
  };
  struct Input {
    Role role = Role::kTokens;
    DataType type = DataType::kInt64;
    size_t state = 0;  // of kState
  };
  struct State {
    std::string name;
    size_t input = 0, output = 0;  // of the session
    DataType type = DataType::kFloat;
    SymbolicShape shape;
    int batch_axis = 0;
    int past_axis = -1;  // -1: it is of one size
  };
  // How sequences of different lengths take a step in one run, their states side by side: not;
  // with what is missing of the shorter ones before their tokens; or behind them.
  enum class Joining { kAlone, kPaddedBefore, kPaddedBehind };

  std::vector<Input> inputs;  // the session's
  std::vector<State> states;
  size_t logits = 0;
  Joining joining = Joining::kAlone;
  // Steps give states of the size of those that they take, while these have room.
  bool keeps_size = false;
  // These steps add their tokens to the memory of the states that they take, and copy none.
  bool in_place = false;
  // They stay on the device that computes them, where the next run takes them.
  bool states_on_device = false;
  int64_t context_length = std::numeric_limits<int64_t>::max();  // tokens of a sequence, at most

  bool has_mask() const;
  // RunOptions::outputs_on_device of its runs.
  std::vector<bool> OutputsOnDevice() const;

  // What it asks of the session that it is made for.
  static void AskOf(SessionOptions& options);
};

// Whether the inputs are those of such a model: tokens, and something of the tokens before.
bool IsDecoder(const std::vector<TensorSignature>& inputs);

// `joining` and what follows are left as they are. kInvalidArgument for what is none;
// kUnimplemented, by its name, for an input that nothing is known of, and a state of several free
// dimensions.
Result<DecoderPlan> MakeDecoderPlan(const std::vector<TensorSignature>& inputs,
                                    const std::vector<TensorSignature>& outputs);

}  // namespace onnxd
