// The operators with subgraphs, each made from its node: If, Loop, Scan, SequenceMap, FlexAttention
// and com.microsoft's generation of tokens.
#pragma once

#include <memory>

#include "runtime/session/control_flow.h"
#include "runtime/session/graph_executor.h"

namespace onnxd {

// A subgraph and the positions of its node's captures that it uses.
struct Body {
  std::shared_ptr<Graph> graph;
  std::unique_ptr<GraphExecutor> executor;
  std::vector<size_t> captures;

  // `inputs` of the subgraph, then what it uses of the node's `node_captures`.
  Result<std::vector<Value>> Run(std::vector<Value> inputs, std::span<const Value> node_captures,
                                 const RunOptions& options) const;
};

// Compiles the subgraph with the providers of the enclosing graph.
Result<Body> MakeBody(const Node& node, std::string_view attribute, const ExecutorOptions& options);

// Whether MakeControlFlow makes something of the node.
bool IsControlFlow(const Node& node);

// Null when the node is no control flow. Bodies are compiled. kInvalidArgument when the numbers of
// inputs and outputs of a body do not fit the node.
Result<std::unique_ptr<ControlFlow>> MakeControlFlow(const Node& node,
                                                     const ExecutorOptions& options);

// The makers of the single operators, for MakeControlFlow.
Result<std::unique_ptr<ControlFlow>> MakeConditional(const Node& node,
                                                     const ExecutorOptions& options);
Result<std::unique_ptr<ControlFlow>> MakeFlexAttention(const Node& node,
                                                       const ExecutorOptions& options);
Result<std::unique_ptr<ControlFlow>> MakeLoop(const Node& node, const ExecutorOptions& options);
Result<std::unique_ptr<ControlFlow>> MakeScan(const Node& node, const ExecutorOptions& options);
Result<std::unique_ptr<ControlFlow>> MakeSequenceMap(const Node& node,
                                                     const ExecutorOptions& options);
Result<std::unique_ptr<ControlFlow>> MakeTokenSearch(const Node& node,
                                                     const ExecutorOptions& options);

}  // namespace onnxd
