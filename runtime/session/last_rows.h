// AddLastRows: lets callers of a session say how many of an output's last rows they want, where a
// graph computes them all: a language model's logits of a whole prompt are a third of its time and
// most of its memory, and the next token needs the last row alone.
#pragma once

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

// Which output, [batch, rows, elements], of graphs that have an input whose name begins so.
struct LastRows {
  std::string output;  // empty: none
  std::string beside;

  // Of the input that the graph then has, int64 [n]: n last rows of the output are computed, or all
  // where it has fewer. Its elements are not read: planning knows the shapes of such a run.
  static constexpr const char* kInput = "onnxd.last_rows";
};

// Where the output is computed row by row from a product on, only the last rows are given to that
// product; any other graph is left as it is, as is one with an input of that name. Requires
// inferred types, and leaves them inferred. Errors as InferGraph.
Status AddLastRows(const LastRows& wanted, Graph& graph);

}  // namespace onnxd
