// CompiledNode: what computes one node of a graph.
#pragma once

#include <memory>
#include <string>

#include "runtime/kernel/kernel.h"
#include "runtime/session/control_flow.h"

namespace onnxd {

// A kernel of a provider, or control flow that the session runs itself; never both.
struct CompiledNode {
  std::unique_ptr<Kernel> kernel;
  std::unique_ptr<ControlFlow> control_flow;
  std::string provider;  // its name; "session" for control flow
};

}  // namespace onnxd
