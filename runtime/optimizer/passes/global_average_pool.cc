#include <set>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// Whether a mean is one of whole images, each channel's, and keeps their axes.
bool IsOfImages(const Graph& graph, const Node& mean) {
  if (!mean.Is("ReduceMean") || mean.attributes.Int("keepdims", 1) == 0) return false;
  const auto rank = RankOf(graph, mean.inputs[0]);
  const auto axes = AxesOfReduction(graph, mean);
  if (!rank || *rank < 3 || !axes || !IsFloat(graph, mean.inputs[0])) return false;
  std::set<int64_t> reduced;
  for (const int64_t axis : *axes) reduced.insert(axis < 0 ? axis + *rank : axis);
  return static_cast<int>(reduced.size()) == *rank - 2 && *reduced.begin() == 2 &&
         *reduced.rbegin() == *rank - 1;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "global_average_pool"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!IsOfImages(graph, node)) continue;
      node.op_type = "GlobalAveragePool";
      node.since_version = 1;
      node.inputs.resize(1);
      node.attributes = {};
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* GlobalAveragePoolFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
