// AddDroppedTokens: lets callers drop the first tokens of a decoder's states when a run begins. A
// step gives states that are a token longer than those that it takes; without one of those they
// keep their size, so that all steps of sequences that are filled up in front share one plan.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

struct DroppedTokens {
  // Inputs whose names begin so and that have two free dimensions are states, the tokens lie along
  // the second one. Empty: none.
  std::string states;

  // Of the input that the graph then has, int64 [n]: the first n tokens of all states are as if
  // they had not been given. Its elements are not read: planning knows the shapes of such a run.
  static constexpr const char* kInput = "onnxd.dropped_tokens";
};

// A graph without such states is left as it is, as is one with an input of that name. Requires
// inferred types, and leaves them inferred. Errors as InferGraph.
Status AddDroppedTokens(const DroppedTokens& wanted, Graph& graph);

}  // namespace onnxd
