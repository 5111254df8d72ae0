#include "runtime/providers/cpu/onednn/passes/planar_conv.h"

#include "runtime/graph/graph_match.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/onednn/own_products.h"

namespace onnxd {
namespace {

constexpr int64_t kMostChannels = 4, kMostWindow = 49;

bool IsPlanar(const Graph& graph, const Node& node) {
  if (!node.Is("ConvChannelsLast", "onnxd") || node.input(3) != kNoValue ||
      !IsFloat(graph, node.outputs[0])) {
    return false;
  }
  const auto found = graph.initializers.find(node.inputs[1]);
  if (found == graph.initializers.end()) return false;
  const Shape& w = found->second.shape();
  const Attributes& a = node.attributes;
  return w.rank() == 4 && w[0] > math::kMostFewColumns && w[1] >= 1 && w[1] <= kMostChannels &&
         w[2] * w[3] <= kMostWindow && a.Int("group", 1) == 1 && AreAll(a.Ints("dilations"), 1) &&
         a.Int("filters_last", 0) == 0;
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
      if (!IsPlanar(graph, node)) continue;
      const int producer = index.producer(node.inputs[0]);
      if (producer < 0 || index.use_count(node.inputs[0]) != 1) continue;
      const Node& turn = graph.nodes[static_cast<size_t>(producer)];
      if (!TurnsPlanes(turn)) continue;
      node.op_type = "PlanarConv";
      node.inputs[0] = turn.inputs[0];
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
