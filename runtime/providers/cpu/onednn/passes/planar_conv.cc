#include "runtime/providers/cpu/onednn/passes/planar_conv.h"

#include "runtime/math/simd.h"
#include "runtime/providers/cpu/onednn/own_products.h"
#include "runtime/providers/cpu/onednn/passes/conv_nodes.h"
#include "runtime/providers/cpu/onednn/planar_windows.h"

namespace onnxd {
namespace {

bool ReadsPlanes(const Graph& graph, const Node& node) {
  const Shape* w = ConvWeightShape(graph, node);
  return w != nullptr && node.input(3) == kNoValue && (*w)[0] > math::kMostFewColumns &&
         onednn::TakesPlanes(node.attributes, *w);
}

bool TurnsPlanes(const Node& node) {
  return node.Is("Transpose") && node.attributes.Ints("perm") == std::vector<int64_t>{0, 2, 3, 1};
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "planar_conv"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision == Precision::kBfloat16 || !onednn::OwnProductsTakeFewChannels()) {
      return false;
    }
    const GraphIndex index(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!ReadsPlanes(graph, node)) continue;
      const Node* turn = ProducerForItAlone(graph, index, node);
      if (turn == nullptr || !TurnsPlanes(*turn)) continue;
      node.op_type = "PlanarConv";
      node.inputs[0] = turn->inputs[0];
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* PlanarConvFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
