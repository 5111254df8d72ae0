#include "runtime/providers/cpu/passes/constant_captures.h"

namespace onnxd {
namespace {

// A body's captures are positions in its node's list.
bool Import(const Graph& graph, const Node& node, Graph& body) {
  bool changed = false;
  for (size_t i = 0; i < body.captures.size(); ++i) {
    const ValueId inner = body.captures[i];
    if (inner == kNoValue) continue;
    const auto constant = graph.initializers.find(node.captures[i]);
    if (constant == graph.initializers.end()) continue;
    body.initializers[inner] = constant->second;
    body.captures[i] = kNoValue;
    changed = true;
  }
  return changed;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "constant_captures"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (Node& node : graph.nodes) {
      for (auto& [name, attribute] : node.attributes.entries()) {
        auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
        if (body != nullptr) changed = Import(graph, node, **body) || changed;
      }
    }
    return changed;
  }
};

}  // namespace

const GraphPass* ConstantCaptures() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
