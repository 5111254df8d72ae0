#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/fast_kernels.h"
#include "runtime/providers/cpu/passes/quantized_operators.h"

namespace onnxd {
namespace {

// Replaces one QLinearConv: x, its scale and zero point, w likewise, y's scale and zero point,
// bias.
class Rewrite {
 public:
  Rewrite(Graph& graph, const Node& conv) : graph_(graph), conv_(conv) {}

  // The node that makes the result; those before it are added to the graph.
  Node Run() {
    const ValueId x = Dequantized(0, 1), w = Dequantized(3, 4);
    Node floats = Named("Conv", 11);
    floats.attributes = conv_.attributes;
    floats.inputs = {x, w};
    if (conv_.input(8) != kNoValue) floats.inputs.push_back(Bias());
    const ValueId sums = Add(std::move(floats), "_floats");
    Node result = Named("QuantizeLinear", 13);
    result.inputs = {sums, conv_.inputs[6], conv_.inputs[7]};
    result.outputs = conv_.outputs;
    return result;
  }

 private:
  Node Named(std::string op_type, int version) const {
    Node node;
    node.name = conv_.name;
    node.op_type = std::move(op_type);
    node.since_version = version;
    return node;
  }

  ValueId Add(Node node, std::string_view suffix) {
    const ValueId out =
        graph_.AddUniqueValue(graph_.value(conv_.outputs[0]).name + std::string(suffix));
    node.outputs = {out};
    graph_.nodes.push_back(std::move(node));
    return out;
  }

  // Scales of weights are one, or one per filter.
  ValueId Dequantized(size_t bytes, size_t scale) {
    Node node = Named("DequantizeLinear", 13);
    node.inputs = {conv_.inputs[bytes], conv_.inputs[scale], conv_.inputs[scale + 1]};
    node.attributes.Set("axis", int64_t{0});
    return Add(std::move(node), "_dequantized");
  }

  // The bias counts in units of x_scale * w_scale.
  ValueId Bias() {
    Node scale = Named("Mul", 13);
    scale.inputs = {conv_.inputs[1], conv_.inputs[4]};
    const ValueId unit = Add(std::move(scale), "_bias_scale");
    Node whole = Named("Cast", 13);
    whole.inputs = {conv_.inputs[8]};
    whole.attributes.Set("to", static_cast<int64_t>(DataType::kFloat));
    const ValueId floats = Add(std::move(whole), "_bias_floats");
    Node bias = Named("Mul", 13);
    bias.inputs = {floats, unit};
    return Add(std::move(bias), "_bias");
  }

  Graph& graph_;
  const Node conv_;
};

// Scales and zero points of x and y are one number each, so that no broadcast is one of channels.
bool HasUsualFormats(const Graph& graph, const Node& conv) {
  for (const size_t i : {1, 2, 6, 7}) {
    const auto found = graph.initializers.find(conv.input(i));
    if (found == graph.initializers.end() || found->second.shape().ElementCount() != 1) {
      return false;
    }
  }
  const auto scale = graph.initializers.find(conv.input(4));
  const auto zero = graph.initializers.find(conv.input(5));
  return scale != graph.initializers.end() && zero != graph.initializers.end() &&
         scale->second.shape().ElementCount() == zero->second.shape().ElementCount() &&
         scale->second.shape().rank() <= 1 && conv.input(0) != kNoValue;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "quantized_conv_in_floats"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    const size_t count = graph.nodes.size();
    for (size_t i = 0; i < count; ++i) {
      if (!graph.nodes[i].Is("QLinearConv") || !HasUsualFormats(graph, graph.nodes[i]) ||
          TakesQuantizedConv(graph, graph.nodes[i])) {
        continue;
      }
      Node result = Rewrite(graph, graph.nodes[i]).Run();
      graph.nodes[i] = std::move(result);
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* QuantizedConvInFloats() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
