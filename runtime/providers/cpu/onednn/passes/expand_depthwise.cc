#include "runtime/providers/cpu/onednn/passes/expand_depthwise.h"

#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/depthwise.h"

namespace onnxd {
namespace {

// Smaller images in between stay in the second-level cache anyway.
constexpr int64_t kLeastBytes = 768 << 10;

const Shape* WeightsOf(const Graph& graph, const Node& node) {
  if (!node.Is("ConvChannelsLast", "onnxd") || node.input(3) != kNoValue) return nullptr;
  const auto weights = graph.initializers.find(node.inputs[1]);
  return weights == graph.initializers.end() ? nullptr : &weights->second.shape();
}

bool IsExpansion(const Graph& graph, const Node& node) {
  const Shape* w = WeightsOf(graph, node);
  const Attributes& a = node.attributes;
  return w != nullptr && (*w)[2] == 1 && (*w)[3] == 1 && a.Int("group", 1) == 1 &&
         AreAll(a.Ints("strides"), 1) && AreAll(a.Ints("pads"), 0);
}

bool IsDepthwise(const Graph& graph, const Node& node) {
  const Shape* w = WeightsOf(graph, node);
  return w != nullptr && node.attributes.Int("group", 1) == (*w)[0] &&
         DepthwiseConv::Takes(node.attributes, *w);
}

bool IsLarge(const Graph& graph, ValueId id) {
  const auto& shape = graph.value(id).type.shape;
  if (!shape || shape->size() != 4) return false;
  int64_t bytes = sizeof(float);
  for (size_t axis = 1; axis < 4; ++axis) {
    if (!(*shape)[axis].known()) return false;
    bytes *= (*shape)[axis].value;
  }
  return bytes >= kLeastBytes;
}

Node Fused(const Node& expand, const Node& depthwise) {
  Node node = depthwise;
  node.op_type = "ExpandDepthwise";
  node.attributes.Erase("group");
  const std::string activation = expand.attributes.String("activation", "");
  if (!activation.empty()) {
    node.attributes.Set("expand_activation", activation);
    node.attributes.Set("expand_activation_params", expand.attributes.Floats("activation_params"));
  }
  node.inputs = {expand.inputs[0], expand.inputs[1], expand.input(2), depthwise.inputs[1]};
  if (depthwise.input(2) != kNoValue) node.inputs.push_back(depthwise.inputs[2]);
  return node;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "expand_depthwise"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision == Precision::kBfloat16) return false;
    const GraphIndex index(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!IsDepthwise(graph, node)) continue;
      const int producer = index.producer(node.inputs[0]);
      if (producer < 0 || index.use_count(node.inputs[0]) != 1) continue;
      const Node& expand = graph.nodes[static_cast<size_t>(producer)];
      if (!IsExpansion(graph, expand) || !IsLarge(graph, node.inputs[0])) continue;
      node = Fused(expand, node);  // the expansion is dead now
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* ExpandDepthwiseFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
