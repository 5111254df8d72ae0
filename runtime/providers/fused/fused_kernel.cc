// onnxd::Fused: neighbours of the graph as one kernel of the device.
#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/fused/body_writer.h"
#include "runtime/providers/fused/fused_kernels.h"
#include "runtime/providers/fused/fused_shapes.h"
#include "runtime/providers/fused/row_operator.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/providers/gpu/pointwise_expressions.h"

namespace onnxd {

FusedParts PartsAround(const Graph& graph, size_t heart) {
  std::vector<bool> depends(graph.value_count(), false);
  FusedParts parts;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool after =
        n == heart || std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
          return id != kNoValue && depends[static_cast<size_t>(id)];
        });
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) depends[static_cast<size_t>(id)] = after;
    }
    if (n != heart) (after ? parts.after : parts.before).push_back(n);
  }
  return parts;
}

FusedNodeInfo::FusedNodeInfo(const KernelInfo& whole, const Graph& graph, const Node& node)
    : info_{node, {}, {}, nullptr, whole.only_asks} {
  for (const ValueId id : node.inputs) {
    inputs_.push_back(id == kNoValue ? ValueType{} : graph.value(id).type);
  }
  for (const ValueId id : node.outputs) {
    outputs_.push_back(id == kNoValue ? ValueType{} : graph.value(id).type);
  }
  info_.input_types = inputs_;
  info_.output_types = outputs_;
  info_.constant_input = [&whole, &graph, &node](size_t i) -> const Initializer* {
    const size_t position = InputPosition(graph, node.input(i));
    return position < graph.inputs.size() ? whole.constant_input(position) : nullptr;
  };
}

Result<std::unique_ptr<Kernel>> MakeFusedPointwise(const KernelInfo&, FusedGraph graph,
                                                   GpuDevice& device) {
  PointwiseProgram program;
  BodyWriter writer(*graph);
  for (size_t i = 0; i < graph->inputs.size(); ++i) {
    program.inputs.push_back(graph->value(graph->inputs[i]).type.element);
    writer.Define(graph->inputs[i], StrCat("x", i));
  }
  for (const Node& node : graph->nodes) writer.Add(node);
  program.functions = PointwiseFunctions();
  program.statements = writer.statements();
  for (const ValueId id : graph->outputs) {
    program.outputs.push_back(graph->value(id).type.element);
    program.results.push_back(writer.NameOf(id));
  }
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const FusedShapes shapes, FusedShapes::Make(*graph, context));
    std::vector<const Shape*> operands;
    for (const ValueId id : graph->inputs) operands.push_back(&shapes.of(id));
    return PreparePointwise(program, device, operands, shapes.of(graph->outputs[0]), nullptr);
  });
}

Result<std::unique_ptr<Kernel>> MakeFused(const KernelInfo& info, GpuDevice& device) {
  const FusedGraph* graph = info.node.attributes.Find<FusedGraph>("graph");
  if (graph == nullptr) return Unimplemented("it has no graph");
  const auto& nodes = (*graph)->nodes;
  const auto heart = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const Node& node) { return !IsPointwise(**graph, node); });
  if (heart == nodes.end()) return MakeFusedPointwise(info, *graph, device);
  const auto position = static_cast<size_t>(heart - nodes.begin());
  if (IsRowOperator(**graph, *heart)) return MakeFusedRows(info, *graph, position, device);
  return MakeFusedProduct(info, *graph, position, device);
}

}  // namespace onnxd
