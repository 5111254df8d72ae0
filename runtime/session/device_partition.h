// Which nodes run on a device and which on the host, and the copies between them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernel/execution_provider.h"

namespace onnxd {

// The device of the providers; null when they compute on the host alone.
Device* DeviceOf(std::span<const std::shared_ptr<const ExecutionProvider>> providers);

// Why a node has the provider it has, for people.
struct Placement {
  std::string provider;
  std::string reason;  // why no provider before it; empty: there was none
};

// Gives every node of the graph and of its bodies a provider (Node::provider), or "session" for
// control flow. Providers stand by priority; those with a device share one. A node that only one
// side takes is there. Large computations that a device takes are on it. All else is where fewest
// values cross between the two sides, on the device where that is the same; but what computes
// shapes stays on the host. Values that come from outside, and constants, cross for free, except in
// bodies of control flow. Without a device, nodes are left to the first provider that takes them.
// Errors as AssignProvider.
Status PartitionGraph(Graph& graph,
                      std::span<const std::shared_ptr<const ExecutionProvider>> providers);

// The same as told to people: one per node of the graph, after PartitionGraph.
std::vector<Placement> ExplainPartition(
    const Graph& graph, std::span<const std::shared_ptr<const ExecutionProvider>> providers);

// Puts a node onnxd::CopyToDevice or onnxd::CopyToHost behind every value that the other side
// reads: one per value and direction. Requires a partitioned graph.
Status InsertCopies(Graph& graph,
                    std::span<const std::shared_ptr<const ExecutionProvider>> providers);

// Whether the node is one of these.
bool IsCopyNode(const Node& node);
// What computes it.
std::unique_ptr<Kernel> MakeCopyKernel(const Node& node);

}  // namespace onnxd
