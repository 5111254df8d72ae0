#include "runtime/providers/fused/fused_shapes.h"

#include <algorithm>

#include "runtime/ops/fused_graph.h"

namespace onnxd {

Result<FusedShapes> FusedShapes::Make(const Graph& graph, const PrepareContext& context) {
  FusedShapes made;
  made.graph_ = &graph;
  made.known_.assign(graph.value_count(), nullptr);
  std::vector<ValueType> inputs;
  std::vector<const Tensor*> known;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const OperandInfo& input = context.inputs[i];
    if (input.shape == nullptr) return FailedPrecondition("the shape of an input is not known yet");
    inputs.push_back(ValueType::TensorOf(input.type, ToSymbolic(*input.shape)));
    known.push_back(input.value);
    made.known_[static_cast<size_t>(graph.inputs[i])] = input.value;
  }
  ONNXD_ASSIGN_OR_RETURN(const std::vector<ValueType> types, InferFusedGraph(graph, inputs, known));
  for (const ValueType& type : types) {
    const auto shape = type.shape ? ToConcrete(*type.shape) : std::nullopt;
    if (type.known() && !shape) return FailedPrecondition("a shape within is not known yet");
    made.shapes_.push_back(shape.value_or(Shape()));
  }
  return made;
}

OperandInfo FusedShapes::InfoOf(const Graph& graph, ValueId id) const {
  OperandInfo info;
  if (id == kNoValue) return info;
  info.present = true;
  info.kind = ValueType::Kind::kTensor;
  info.type = graph.value(id).type.element;
  info.shape = &shapes_[static_cast<size_t>(id)];
  info.value = known_[static_cast<size_t>(id)];
  return info;
}

PrepareContext FusedShapes::ContextOf(const Node& node, int threads) {
  inputs_.clear();
  outputs_.clear();
  for (const ValueId id : node.inputs) inputs_.push_back(InfoOf(*graph_, id));
  for (const ValueId id : node.outputs) outputs_.push_back(InfoOf(*graph_, id));
  return {node, inputs_, outputs_, threads};
}

size_t InputPosition(const Graph& graph, ValueId id) {
  return static_cast<size_t>(std::find(graph.inputs.begin(), graph.inputs.end(), id) -
                             graph.inputs.begin());
}

std::vector<size_t> InputPositions(const Graph& graph, const Node& node) {
  std::vector<size_t> positions;
  for (const ValueId id : node.inputs) {
    positions.push_back(id == kNoValue ? graph.inputs.size() : InputPosition(graph, id));
  }
  return positions;
}

FusedCall::FusedCall(const KernelContext& whole, std::span<const size_t> inputs)
    : outputs_{whole.output<void>(0)},
      context_({}, {}, nullptr, nullptr, &whole.pool(), &whole.stream(), whole.step()) {
  for (const size_t position : inputs) {
    inputs_.push_back(const_cast<void*>(whole.input<void>(position)));
  }
  context_ = KernelContext(inputs_, outputs_, whole.scratch<void>(), nullptr, &whole.pool(),
                           &whole.stream(), whole.step());
}

}  // namespace onnxd
