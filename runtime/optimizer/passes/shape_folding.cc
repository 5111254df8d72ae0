#include "runtime/ops/shape_inference.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "shape_folding"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    std::map<ValueId, Tensor> computed;
    ONNXD_RETURN_IF_ERROR(InferGraph(graph, &computed));
    std::erase_if(graph.nodes, [&](const Node& node) {
      return node.outputs.size() == 1 && computed.contains(node.outputs[0]);
    });
    for (auto& [id, tensor] : computed) graph.initializers[id] = Initializer(std::move(tensor));
    return !computed.empty();
  }
};

}  // namespace

const GraphPass* ShapeFolding() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
