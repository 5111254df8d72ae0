#include "runtime/session/control_flow_nodes.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<std::vector<Value>> Body::Run(std::vector<Value> inputs,
                                     std::span<const Value> node_captures,
                                     const RunOptions& options) const {
  for (const size_t i : captures) inputs.push_back(node_captures[i]);
  return executor->Run(inputs, options);
}

Result<Body> MakeBody(const Node& node, std::string_view attribute,
                      const ExecutorOptions& options) {
  Body body;
  body.graph = node.attributes.Subgraph(attribute);
  for (size_t i = 0; i < body.graph->captures.size(); ++i) {
    if (body.graph->captures[i] != kNoValue) body.captures.push_back(i);
  }
  ONNXD_ASSIGN_OR_RETURN(body.executor, GraphExecutor::Create(body.graph, options));
  return body;
}

Result<std::unique_ptr<ControlFlow>> MakeControlFlow(const Node& node,
                                                     const ExecutorOptions& options) {
  if (node.Is("If")) return MakeConditional(node, options);
  if (node.Is("Loop")) return MakeLoop(node, options);
  if (node.Is("Scan")) return MakeScan(node, options);
  if (node.Is("SequenceMap")) return MakeSequenceMap(node, options);
  if (node.Is("FlexAttention", "ai.onnx.preview")) return MakeFlexAttention(node, options);
  for (const char* search : {"GreedySearch", "Sampling", "BeamSearch", "WhisperBeamSearch"}) {
    if (node.Is(search, "com.microsoft")) return MakeTokenSearch(node, options);
  }
  return std::unique_ptr<ControlFlow>();
}

}  // namespace onnxd
