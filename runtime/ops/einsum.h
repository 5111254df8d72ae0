// Einsum's equation. Source: ONNX Einsum-12, numpy.einsum.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

// Labels are letters; the dimensions of an ellipsis get labels 0, 1, ... of their own, the last
// dimension of all ellipses being shared.
struct EinsumEquation {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
  int label_count = 0;
};

// kInvalidArgument names the node and what is wrong with the equation or the ranks.
Result<EinsumEquation> ParseEinsum(const Node& node, const std::vector<int>& ranks);

}  // namespace onnxd
