#include <algorithm>

#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "dead_code_elimination"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    std::vector<bool> used(graph.value_count(), false);
    for (const ValueId id : graph.outputs) used[static_cast<size_t>(id)] = true;
    std::vector<Node> kept;
    bool changed = false;
    for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
      const bool live = std::any_of(node->outputs.begin(), node->outputs.end(), [&](ValueId id) {
        return id != kNoValue && used[static_cast<size_t>(id)];
      });
      if (!live) {
        changed = true;
        continue;
      }
      for (const auto* operands : {&node->inputs, &node->captures}) {
        for (const ValueId id : *operands) {
          if (id != kNoValue) used[static_cast<size_t>(id)] = true;
        }
      }
      kept.push_back(std::move(*node));
    }
    std::reverse(kept.begin(), kept.end());
    graph.nodes = std::move(kept);
    changed = std::erase_if(
                  graph.initializers,
                  [&](const auto& entry) { return !used[static_cast<size_t>(entry.first)]; }) > 0 ||
              changed;
    return changed;
  }
};

}  // namespace

const GraphPass* DeadCodeElimination() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
