#include "runtime/base/checked_math.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

constexpr size_t kSmallBytes = 1 << 20;
constexpr int64_t kMaxInputElements = 16 << 20;

bool IsRandom(const Node& node) {
  return node.op_type.starts_with("Random") || node.op_type == "Bernoulli" ||
         node.op_type == "Multinomial";
}

bool HasSubgraph(const Node& node) {
  for (const auto& [name, attribute] : node.attributes.entries()) {
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return true;
  }
  return false;
}

bool CanFold(const Graph& graph, const Node& node) {
  // Providers compute with quantized weights as they are.
  if (node.Is("DequantizeLinear")) return false;
  if (IsRandom(node) || HasSubgraph(node) || !node.captures.empty()) return false;
  int64_t elements = 0;
  for (const ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    const auto found = graph.initializers.find(id);
    if (found == graph.initializers.end()) return false;
    elements += found->second.shape().ElementCount();
  }
  return elements <= kMaxInputElements;
}

// Widening weights costs memory for the life of the model.
bool Widens(size_t result_bytes, size_t input_bytes, const Node& node) {
  return result_bytes > kSmallBytes && result_bytes > input_bytes && !node.Is("Constant");
}

// Of an output, as far as its shape is known; 0 elsewhere.
size_t ExpectedBytes(const Graph& graph, ValueId id) {
  if (id == kNoValue) return 0;
  const ValueType& type = graph.value(id).type;
  if (!type.is_tensor() || !type.shape || type.element == DataType::kUndefined) return 0;
  int64_t elements = 1;
  for (const Dimension& dimension : *type.shape) {
    if (!dimension.known()) return 0;
    elements = SaturatingMultiply(elements, dimension.value);
  }
  return TensorBytes(type.element, elements).value_or(0);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "constant_folding"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    bool changed = false;
    std::vector<Node> kept;
    for (Node& node : graph.nodes) {
      if (CanFold(graph, node) && Fold(graph, node, context)) {
        changed = true;
      } else {
        kept.push_back(std::move(node));
      }
    }
    graph.nodes = std::move(kept);
    return changed;
  }

 private:
  static bool Fold(Graph& graph, const Node& node, const PassContext& context) {
    std::vector<Tensor> inputs;
    size_t input_bytes = 0;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const Initializer& input = graph.initializers.at(id);
      input_bytes += TensorBytes(input.type(), input.shape().ElementCount()).value_or(0);
    }
    for (const ValueId id : node.outputs) {
      if (Widens(ExpectedBytes(graph, id), input_bytes, node)) return false;
    }
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) {
        inputs.emplace_back();
        continue;
      }
      auto tensor = graph.initializers.at(id).Materialize();
      if (!tensor.ok()) return false;
      inputs.push_back(std::move(*tensor));
    }
    const auto results = context.evaluate(node, inputs);
    if (!results) return false;
    for (const Tensor& result : *results) {
      if (Widens(result.bytes(), input_bytes, node)) return false;
    }
    for (size_t i = 0; i < results->size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const Tensor& result = (*results)[i];
      graph.value(node.outputs[i]).type =
          ValueType::TensorOf(result.type(), ToSymbolic(result.shape()));
      graph.initializers[node.outputs[i]] = Initializer(result);
    }
    return true;
  }
};

}  // namespace

const GraphPass* ConstantFolding() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
