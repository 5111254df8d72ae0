// Control flow: nodes with subgraphs are steps that the session runs, not kernels of a provider.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/session/run_options.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// Immutable; any thread.
class ControlFlow {
 public:
  virtual ~ControlFlow() = default;
  // `inputs` of the node, then its captures.
  virtual Result<std::vector<Value>> Run(std::span<const Value> inputs,
                                         std::span<const Value> captures,
                                         const RunOptions& options) const = 0;
};

}  // namespace onnxd
