#include <algorithm>
#include <memory>

#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// Source: ONNX Loop-16. Before what is carried, a node has the trip count and the condition, a body
// the iteration and the condition, and gives a condition.
constexpr size_t kInputsBefore = 2, kOutputsBefore = 1;

template <typename List>
void EraseAt(List& list, size_t position) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(position));
}

// What is carried at `position`, and whether each iteration hands it on as it is.
bool IsInvariant(const Graph& graph, const Node& loop, const Graph& body, size_t position) {
  const ValueId outer = loop.input(kInputsBefore + position);
  const ValueId result = loop.output(position);
  return outer != kNoValue &&
         body.outputs[kOutputsBefore + position] == body.inputs[kInputsBefore + position] &&
         (result == kNoValue || !graph.IsOutput(result));
}

// The body captures it instead, and what the loop gives is what it was given.
void Capture(Graph& graph, size_t node, Graph& body, size_t position) {
  Node& loop = graph.nodes[node];
  const ValueId outer = loop.inputs[kInputsBefore + position];
  if (loop.output(position) != kNoValue) graph.ReplaceUses(loop.outputs[position], outer);
  loop.captures.push_back(outer);
  body.captures.push_back(body.inputs[kInputsBefore + position]);
  EraseAt(loop.inputs, kInputsBefore + position);
  if (position < loop.outputs.size()) EraseAt(loop.outputs, position);
  EraseAt(body.inputs, kInputsBefore + position);
  EraseAt(body.outputs, kOutputsBefore + position);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "loop_invariants"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& loop = graph.nodes[i];
      if (!loop.Is("Loop")) continue;
      const std::shared_ptr<Graph> body = loop.attributes.Subgraph("body");
      if (body == nullptr || body->inputs.size() != loop.inputs.size()) continue;
      for (size_t carried = loop.inputs.size() - kInputsBefore; carried-- > 0;) {
        if (!IsInvariant(graph, loop, *body, carried)) continue;
        Capture(graph, i, *body, carried);
        changed = true;
      }
    }
    return changed;
  }
};

}  // namespace

const GraphPass* LoopInvariants() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
