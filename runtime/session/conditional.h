// If: runs one of two subgraphs. Source: ONNX If-1 to If-25.
#pragma once

#include <memory>

#include "runtime/session/control_flow.h"

namespace onnxd {

struct ExecutorOptions;

// Compiles both branches with the same providers. kInvalidArgument when their numbers of outputs
// are not the node's.
Result<std::unique_ptr<ControlFlow>> MakeConditional(const Node& node,
                                                     const ExecutorOptions& options);

}  // namespace onnxd
