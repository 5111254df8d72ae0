#include "runtime/providers/cpu/passes/expanded_indices.h"

#include <algorithm>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

bool Takes(DataType type) {
  static constexpr DataType kTypes[] = {DataType::kFloat,    DataType::kDouble, DataType::kFloat16,
                                        DataType::kBfloat16, DataType::kInt32,  DataType::kInt64};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "expanded_indices"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("ScatterElements")) continue;
      const Node* expand = match.Producer(node.inputs[1], "Expand");
      const ValueType& data = graph.value(node.inputs[0]).type;
      if (expand == nullptr || !data.is_tensor() || !Takes(data.element)) continue;
      node.op_type = "ScatterElementsBroadcast";
      node.domain = "onnxd";
      node.since_version = 1;
      node.inputs[1] = expand->inputs[0];
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* ExpandedIndices() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
