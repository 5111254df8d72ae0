// CompiledNode: what computes one node of a graph.
#pragma once

#include <memory>
#include <string>

#include "runtime/kernel/kernel.h"
#include "runtime/session/control_flow.h"

namespace onnxd {

// Where a node's operands are and where it leaves its results; copies go from one to the other.
enum class Side { kHost, kDevice, kToDevice, kToHost };

inline bool ReadsDevice(Side side) { return side == Side::kDevice || side == Side::kToHost; }
inline bool WritesDevice(Side side) { return side == Side::kDevice || side == Side::kToDevice; }

// A kernel of a provider or of the session's own, or control flow that the session runs itself;
// never both.
struct CompiledNode {
  std::unique_ptr<Kernel> kernel;
  std::unique_ptr<ControlFlow> control_flow;
  std::string provider;  // its name; "session" for control flow and copies
  Side side = Side::kHost;

  // Whether the kernel wants input i on the device.
  bool ReadsOnDevice(size_t i) const { return ReadsDevice(side) && !kernel->ReadsOnHost(i); }
};

}  // namespace onnxd
