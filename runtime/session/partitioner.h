// Gives the nodes of a graph to execution providers.
#pragma once

#include <memory>
#include <span>

#include "runtime/kernel/execution_provider.h"
#include "runtime/session/compiled_node.h"

namespace onnxd {

// The kernel of the first provider in `providers`, which stand by priority, that takes the node:
// one that answers kUnimplemented is passed over, any other failure ends the search, as the model
// cannot load. When none takes it: kUnimplemented with every provider's reason.
Result<CompiledNode> AssignProvider(
    const Graph& graph, const Node& node,
    std::span<const std::shared_ptr<const ExecutionProvider>> providers);

// As AssignProvider, of the provider that the node was given, or of all where it has none.
Result<CompiledNode> MakeAssignedKernel(
    const Graph& graph, const Node& node,
    std::span<const std::shared_ptr<const ExecutionProvider>> providers);

// What this provider alone answers: kUnimplemented with its reason where it declines the node.
Status CanTake(const Graph& graph, const Node& node, const ExecutionProvider& provider);

// AssignProvider's answer without a kernel.
Status CanAssignProvider(const Graph& graph, const Node& node,
                         std::span<const std::shared_ptr<const ExecutionProvider>> providers);

}  // namespace onnxd
