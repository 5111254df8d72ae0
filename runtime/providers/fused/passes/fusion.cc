#include "runtime/providers/fused/passes/fusion.h"

#include <functional>

#include "runtime/graph/shape_nodes.h"
#include "runtime/ops/fused_graph.h"
#include "runtime/providers/fused/body_writer.h"
#include "runtime/providers/fused/passes/region.h"
#include "runtime/providers/fused/row_operator.h"

namespace onnxd {
namespace {

// As gpu/product.h's PlannerOf, of floating-point operands.
bool IsProduct(const Graph& graph, const Node& node) {
  const bool known = node.Is("MatMul") || node.Is("FusedMatMul", "com.microsoft") ||
                     (node.Is("Gemm") && node.since_version >= 7) || node.Is("Conv") ||
                     node.Is("FusedConv", "com.microsoft") || node.Is("ConvTranspose") ||
                     node.Is("ConvChannelsLast", "onnxd") ||
                     node.Is("MatMulNBits", "com.microsoft");
  return known && IsFloatingPoint(graph.value(node.inputs[0]).type.element);
}

class Fusion {
 public:
  explicit Fusion(Graph& graph)
      : graph_(graph),
        index_(graph),
        shapes_(graph),
        taken_(graph.nodes.size(), false),
        finished_(graph.nodes.size()),
        drop_(taken_) {
    // What computes shapes stays on the host, which has no fused nodes.
    const std::vector<bool> shape_values = FindShapeValues(graph);
    for (size_t n = 0; n < taken_.size(); ++n) {
      taken_[n] = ComputesShapes(graph.nodes[n], shape_values);
    }
  }

  bool Run() {
    // From the end, so that what joins two branches goes to the later one.
    ForEach([&](size_t n) {
      if (!IsProduct(graph_, graph_.nodes[n])) return;
      Region region(graph_, index_, shapes_, taken_, finished_, n);
      region.GrowDown(graph_.nodes[n].outputs[0]);
      Take(region);
    });
    ForEach([&](size_t n) {
      const Node& node = graph_.nodes[n];
      if (!IsRowOperator(graph_, node)) return;
      Region region(graph_, index_, shapes_, taken_, finished_, n);
      region.GrowDown(node.outputs[0]);
      region.GrowUp(node.inputs[0], n);
      Take(region);
    });
    ForEach([&](size_t n) {
      const Node& node = graph_.nodes[n];
      if (!IsPointwise(graph_, node)) return;
      Region region(graph_, index_, shapes_, taken_, finished_, n);
      region.GrowUp(node.outputs[0], graph_.nodes.size());
      Take(region);
    });
    for (auto& [position, node] : fused_) {
      graph_.nodes[position] = std::move(node);
      drop_[position] = false;
    }
    size_t position = 0;
    std::erase_if(graph_.nodes, [&](const Node&) { return drop_[position++]; });
    return !fused_.empty();
  }

 private:
  void ForEach(const std::function<void(size_t)>& visit) {
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      if (!taken_[n]) visit(n);
    }
  }

  // One node where there were several, in the place of the last.
  void Take(const Region& region) {
    if (region.members().size() < 2) return;
    const std::vector<ValueId> outputs = region.Outputs();
    if (outputs.empty()) return;
    const std::vector<size_t> members(region.members().begin(), region.members().end());
    fused_.emplace_back(members.back(), FuseNodes(graph_, members, outputs));
    for (const size_t member : members) taken_[member] = drop_[member] = true;
    finished_.Add(members);
  }

  Graph& graph_;
  const GraphIndex index_;
  const ShapeIdentity shapes_;
  std::vector<bool> taken_;
  FinishedRegions finished_;
  std::vector<bool> drop_;
  std::vector<std::pair<size_t, Node>> fused_;  // by position
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "neighbour_fusion"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }
  Result<bool> Run(Graph& graph, const PassContext&) const override { return Fusion(graph).Run(); }
};

}  // namespace

const GraphPass* NeighbourFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
