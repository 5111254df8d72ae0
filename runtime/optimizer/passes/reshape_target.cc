#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "reshape_target"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("Reshape") || node.since_version < 5 || graph.IsInitializer(node.inputs[1])) {
        continue;
      }
      const auto &from = graph.value(node.inputs[0]).type.shape,
                 &to = graph.value(node.outputs[0]).type.shape;
      const auto target = from && to ? ReshapeTarget(*from, *to) : std::nullopt;
      if (!target) continue;
      const Shape row{static_cast<int64_t>(target->size())};
      const std::string hint = graph.value(node.inputs[1]).name + "_target";
      node.inputs[1] =
          graph.AddInitializer(hint, Tensor::Of<int64_t>(row, std::span<const int64_t>(*target)));
      node.attributes.Erase("allowzero");
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* ReshapeTargetFolding() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
