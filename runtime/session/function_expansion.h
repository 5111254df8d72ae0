// Gives nodes that no provider takes to the operators of their function body; and those that a
// device would leave to the host, where it knows these operators.
#pragma once

#include <memory>
#include <span>

#include "runtime/kernel/execution_provider.h"

namespace onnxd {

// Replaces every node that has a function body (runtime/ops/functions.h) and that no provider
// takes, or none with a device while one knows all the body's operators, and again in what came of
// it; subgraphs included. Types and shapes of the new values are
// inferred. kUnimplemented when that leaves a node without a provider whose body cannot be made;
// kResourceExhausted when the expansion outgrows its budget.
Status ExpandFunctions(Graph& graph,
                       std::span<const std::shared_ptr<const ExecutionProvider>> providers);

}  // namespace onnxd
