#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

bool IsConv(const Node& node) { return node.Is("Conv") || node.Is("FusedConv", "com.microsoft"); }

struct FusedActivation {
  std::string name;
  std::vector<float> parameters;
};

std::optional<FusedActivation> ActivationOf(const Graph& graph, const Node& node) {
  if (!node.domain.empty()) return std::nullopt;
  for (const char* plain : {"Relu", "Sigmoid", "Tanh"}) {
    if (node.op_type == plain) return FusedActivation{plain, {}};
  }
  if (node.op_type == "LeakyRelu") {
    return FusedActivation{"LeakyRelu", {node.attributes.Float("alpha", 0.01f)}};
  }
  if (node.op_type == "HardSigmoid") {
    return FusedActivation{
        "HardSigmoid", {node.attributes.Float("alpha", 0.2f), node.attributes.Float("beta", 0.5f)}};
  }
  if (node.op_type != "Clip") return std::nullopt;
  const auto bounds = ClipBounds(graph, node);
  if (!bounds) return std::nullopt;
  return FusedActivation{"Clip", {bounds->low, bounds->high}};
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "conv_activation"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  // In order: what a convolution absorbed is skipped, and positions hold until the end.
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphIndex index(graph);
    std::vector<bool> dropped(graph.nodes.size(), false);
    bool changed = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (dropped[i] || !IsConv(graph.nodes[i]) || !IsFloat(graph, graph.nodes[i].outputs[0])) {
        continue;
      }
      while (Absorb(graph, index, i, dropped)) changed = true;
    }
    size_t position = 0;
    std::erase_if(graph.nodes, [&](const Node&) { return dropped[position++]; });
    return changed;
  }

 private:
  // Lets the convolution produce what its only consumer did, when that is a sum or an activation.
  static bool Absorb(Graph& graph, const GraphIndex& index, size_t position,
                     std::vector<bool>& dropped) {
    Node& conv = graph.nodes[position];
    const ValueId out = conv.outputs[0];
    if (conv.attributes.Has("activation") || index.use_count(out) != 1 ||
        index.consumers(out).empty()) {
      return false;
    }
    const auto next = static_cast<size_t>(index.consumers(out)[0]);
    const Node& consumer = graph.nodes[next];
    if (dropped[next]) return false;
    if (consumer.Is("Add") && consumer.since_version >= 7 && conv.input(3) == kNoValue) {
      // The sum is taken by the last producer.
      const ValueId other = GraphMatcher::OtherOperand(consumer, out);
      if (graph.IsInitializer(other) || !SameKnownShape(graph, out, other) ||
          index.producer(other) > static_cast<int>(position)) {
        return false;
      }
      conv.inputs.resize(4, kNoValue);
      conv.inputs[3] = other;
    } else if (const auto activation = ActivationOf(graph, consumer)) {
      conv.attributes.Set("activation", activation->name);
      if (!activation->parameters.empty()) {
        conv.attributes.Set("activation_params", activation->parameters);
      }
    } else {
      return false;
    }
    conv.op_type = "FusedConv";
    conv.domain = "com.microsoft";
    conv.since_version = 1;
    conv.outputs[0] = consumer.outputs[0];
    dropped[next] = true;
    return true;
  }
};

}  // namespace

const GraphPass* ConvActivationFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
