#include "runtime/providers/fused/passes/reduction_axes.h"

#include "runtime/graph/graph_match.h"
#include "runtime/ops/reduction.h"
#include "runtime/providers/fused/row_operator.h"

namespace onnxd {
namespace {

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "reduction_axes"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!IsReduction(node) || !ReductionAxesAreInput(node)) continue;
      const auto axes =
          node.input(1) == kNoValue ? std::nullopt : IntsConstant(graph, node.inputs[1]);
      if (!axes || axes->empty()) continue;
      node.inputs.resize(1);
      node.attributes.Erase("noop_with_empty_axes");
      node.attributes.Set("axes", *axes);
      node.since_version = node.op_type == "ReduceSum" ? 11 : 13;
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* ReductionAxesAsAttribute() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
