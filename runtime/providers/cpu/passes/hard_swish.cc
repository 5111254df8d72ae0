#include "runtime/providers/cpu/passes/hard_swish.h"

#include <cmath>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

// Source: ONNX HardSwish-14.
constexpr float kAlpha = 1.0f / 6, kBeta = 0.5f;

// x of x * HardSigmoid(x).
ValueId HardSwishArgument(const GraphMatcher& match, const Node& node) {
  if (!node.Is("Mul") || node.since_version < 7) return kNoValue;
  for (const size_t side : {0, 1}) {
    const ValueId x = node.inputs[1 - side];
    const Node* gate = match.Producer(node.inputs[side], "HardSigmoid");
    if (gate == nullptr || gate->inputs[0] != x) continue;
    const float alpha = gate->attributes.Float("alpha", 0.2f);
    const float beta = gate->attributes.Float("beta", 0.5f);
    if (std::abs(alpha - kAlpha) < 1e-6f && std::abs(beta - kBeta) < 1e-6f) return x;
  }
  return kNoValue;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "hard_swish"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      const ValueId x = HardSwishArgument(match, node);
      if (x == kNoValue || !IsFloat(graph, x)) continue;
      node.op_type = "HardSwish";
      node.since_version = 14;
      node.inputs = {x};
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* HardSwishFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
