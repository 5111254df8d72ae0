#include "runtime/fusion/narrow_masks.h"

#include <map>

#include "runtime/graph/repetition.h"

namespace onnxd {
namespace {

constexpr size_t kMask = 3;  // of FusedAttention's inputs

bool IsScalar(const Graph& graph, ValueId id) {
  const auto found = graph.initializers.find(id);
  return found != graph.initializers.end() && found->second.shape().ElementCount() == 1;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "narrow_masks"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    std::map<ValueId, ValueId> narrow;  // by the masks that are read
    std::map<size_t, Node> added;       // by the positions of nodes before which they go
    for (const Node& node : graph.nodes) {
      const bool has_mask = node.Is("FusedAttention", "onnxd") && node.input(kMask) != kNoValue;
      if (!has_mask || narrow.contains(node.inputs[kMask])) continue;
      const ValueId mask = node.inputs[kMask];
      ValueId& found = narrow[mask] = BeforeRepetition(graph, match, mask);
      const Node* where = match.Producer(found, "Where");
      if (where == nullptr || !IsScalar(graph, where->inputs[1]) ||
          !IsScalar(graph, where->inputs[2])) {
        continue;
      }
      const ValueId condition = BeforeRepetition(graph, match, where->inputs[0]);
      if (condition == where->inputs[0]) continue;
      const auto position = static_cast<size_t>(match.index().producer(found));
      Node made = *where;
      made.inputs[0] = condition;
      found = graph.AddUniqueValue(graph.value(found).name + "_narrow");
      made.outputs = {found};
      added.emplace(position, std::move(made));
    }
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("FusedAttention", "onnxd") || node.input(kMask) == kNoValue) continue;
      const ValueId mask = narrow.at(node.inputs[kMask]);
      changed = changed || mask != node.inputs[kMask];
      node.inputs[kMask] = mask;
    }
    for (auto at = added.rbegin(); at != added.rend(); ++at) {
      graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(at->first),
                         std::move(at->second));
    }
    return changed;
  }
};

}  // namespace

const GraphPass* NarrowMasks() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
