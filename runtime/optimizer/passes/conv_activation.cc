#include <algorithm>
#include <limits>
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

// The default when the operand is absent, nullopt when it is no constant.
std::optional<float> Bound(const Graph& graph, ValueId id, float fallback) {
  return id == kNoValue ? fallback : ScalarConstant(graph, id);
}

std::optional<FusedActivation> ActivationOf(const Graph& graph, const Node& node) {
  if (!node.domain.empty()) return std::nullopt;
  for (const char* plain : {"Relu", "Sigmoid", "Tanh", "HardSwish"}) {
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
  constexpr float kLow = std::numeric_limits<float>::lowest();
  constexpr float kHigh = std::numeric_limits<float>::max();
  std::optional<float> low, high;
  if (node.since_version < 11) {
    low = node.attributes.Float("min", kLow);
    high = node.attributes.Float("max", kHigh);
  } else {
    low = Bound(graph, node.input(1), -std::numeric_limits<float>::infinity());
    high = Bound(graph, node.input(2), std::numeric_limits<float>::infinity());
  }
  if (!low || !high) return std::nullopt;
  return FusedActivation{"Clip", {*low, *high}};
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "conv_activation"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  // One fusion a call keeps the index valid; the pass manager's rounds are few, so the loop is
  // here.
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    while (FuseOne(graph)) {
      changed = true;
      ONNXD_RETURN_IF_ERROR(graph.SortNodes());
    }
    return changed;
  }

 private:
  static bool FuseOne(Graph& graph) {
    const GraphIndex index(graph);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Node& conv = graph.nodes[i];
      if (!IsConv(conv) || conv.attributes.Has("activation")) continue;
      const ValueId out = conv.outputs[0];
      if (graph.value(out).type.element != DataType::kFloat) continue;
      if (TryGate(graph, index, conv)) return true;
      if (index.use_count(out) != 1 || index.consumers(out).empty()) continue;
      const auto next = static_cast<size_t>(index.consumers(out)[0]);
      const Node& consumer = graph.nodes[next];
      if (consumer.Is("Add") && consumer.since_version >= 7 && conv.input(3) == kNoValue) {
        const ValueId other = consumer.inputs[0] == out ? consumer.inputs[1] : consumer.inputs[0];
        // Sums that a later convolution could take are taken once: by the last producer.
        if (other == out || graph.IsInitializer(other) || !SameKnownShape(graph, out, other)) {
          continue;
        }
        if (index.producer(other) > static_cast<int>(i)) continue;
        conv.inputs.resize(4, kNoValue);
        conv.inputs[3] = other;
        Absorb(graph, conv, next);
        return true;
      }
      if (const auto activation = ActivationOf(graph, consumer)) {
        conv.attributes.Set("activation", activation->name);
        if (!activation->parameters.empty()) {
          conv.attributes.Set("activation_params", activation->parameters);
        }
        Absorb(graph, conv, next);
        return true;
      }
    }
    return false;
  }

  // x * Sigmoid(x) behind a convolution is its SiLU.
  static bool TryGate(Graph& graph, const GraphIndex& index, Node& conv) {
    const ValueId out = conv.outputs[0];
    if (index.use_count(out) != 2 || index.consumers(out).size() != 2) return false;
    auto sigmoid = static_cast<size_t>(index.consumers(out)[0]);
    auto product = static_cast<size_t>(index.consumers(out)[1]);
    if (graph.nodes[sigmoid].Is("Mul")) std::swap(sigmoid, product);
    if (!graph.nodes[sigmoid].Is("Sigmoid") || !graph.nodes[product].Is("Mul")) return false;
    const ValueId gate = graph.nodes[sigmoid].outputs[0];
    const Node& mul = graph.nodes[product];
    if (index.use_count(gate) != 1 || mul.since_version < 7) return false;
    if (!(mul.inputs[0] == gate && mul.inputs[1] == out) &&
        !(mul.inputs[1] == gate && mul.inputs[0] == out)) {
      return false;
    }
    conv.attributes.Set("activation", std::string("Silu"));
    conv.op_type = "FusedConv";
    conv.domain = "com.microsoft";
    conv.since_version = 1;
    conv.outputs[0] = mul.outputs[0];
    const auto first = std::max(sigmoid, product), second = std::min(sigmoid, product);
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(first));
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(second));
    return true;
  }

  // The convolution produces what its only consumer did.
  static void Absorb(Graph& graph, Node& conv, size_t consumer) {
    conv.op_type = "FusedConv";
    conv.domain = "com.microsoft";
    conv.since_version = 1;
    conv.outputs[0] = graph.nodes[consumer].outputs[0];
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(consumer));
  }
};

}  // namespace

const GraphPass* ConvActivationFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
