#include "runtime/session/control_flow_nodes.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<std::vector<Value>> Body::Run(std::vector<Value> inputs,
                                     std::span<const Value> node_captures,
                                     const RunOptions& options) const {
  for (const size_t i : captures) inputs.push_back(node_captures[i]);
  if (options.outputs_on_device.empty() && options.outputs_into.empty()) {
    return executor->Run(inputs, options);
  }
  RunOptions own = options;
  own.outputs_on_device.clear();  // these are not its outputs
  own.outputs_into.clear();
  return executor->Run(inputs, own);
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

namespace {

struct Maker {
  std::string_view domain, op;
  Result<std::unique_ptr<ControlFlow>> (*make)(const Node&, const ExecutorOptions&);
};

constexpr Maker kMakers[] = {
    {"", "If", MakeConditional},
    {"", "Loop", MakeLoop},
    {"", "Scan", MakeScan},
    {"", "SequenceMap", MakeSequenceMap},
    {"ai.onnx.preview", "FlexAttention", MakeFlexAttention},
    {"com.microsoft", "GreedySearch", MakeTokenSearch},
    {"com.microsoft", "Sampling", MakeTokenSearch},
    {"com.microsoft", "BeamSearch", MakeTokenSearch},
    {"com.microsoft", "WhisperBeamSearch", MakeTokenSearch},
};

const Maker* FindMaker(const Node& node) {
  for (const Maker& maker : kMakers) {
    if (node.Is(maker.op, maker.domain)) return &maker;
  }
  return nullptr;
}

}  // namespace

bool IsControlFlow(const Node& node) { return FindMaker(node) != nullptr; }

Result<std::unique_ptr<ControlFlow>> MakeControlFlow(const Node& node,
                                                     const ExecutorOptions& options) {
  const Maker* maker = FindMaker(node);
  if (maker == nullptr) return std::unique_ptr<ControlFlow>();
  return maker->make(node, options);
}

}  // namespace onnxd
