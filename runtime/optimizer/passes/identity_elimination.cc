#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

bool PassesInputThrough(const Graph& graph, const Node& node) {
  if (node.Is("Identity")) return true;
  if (node.Is("Dropout")) {
    // Training mode, if stated at all, must be a constant that says no; a mask must be unused.
    return node.output(1) == kNoValue && node.input(2) == kNoValue;
  }
  if (node.Is("Cast")) {
    const ValueType& from = graph.value(node.inputs[0]).type;
    return from.is_tensor() && static_cast<int64_t>(from.element) == node.attributes.Int("to", 0);
  }
  return false;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "identity_elimination"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphIndex index(graph);
    bool changed = false;
    std::vector<Node> kept;
    std::vector<std::pair<ValueId, ValueId>> replaced;
    const auto current = [&](ValueId id) {
      for (const auto& [from, to] : replaced) {
        if (id == from) id = to;
      }
      return id;
    };
    for (const Node& node : graph.nodes) {
      const ValueId out = node.output(0), in = node.input(0);
      if (in == kNoValue || !PassesInputThrough(graph, node)) {
        kept.push_back(node);
        continue;
      }
      // A graph output needs a producer of its own to take over the name.
      if (graph.IsOutput(out) &&
          (index.producer(in) < 0 || graph.IsOutput(in) || current(in) != in)) {
        kept.push_back(node);
        continue;
      }
      replaced.emplace_back(out, current(in));
      changed = true;
    }
    graph.nodes = std::move(kept);
    for (const auto& [from, to] : replaced) graph.ReplaceUses(from, to);
    return changed;
  }
};

}  // namespace

const GraphPass* IdentityElimination() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
