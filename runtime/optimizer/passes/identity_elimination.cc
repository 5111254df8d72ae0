#include <numeric>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/ops/convolution.h"
#include "runtime/ops/slice.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// The integers of an initializer; `otherwise` where the node has no such input.
std::optional<std::vector<int64_t>> Integers(const Graph& graph, ValueId id,
                                             std::vector<int64_t> otherwise) {
  return id == kNoValue ? std::move(otherwise) : IntsConstant(graph, id);
}

// Declared shapes are not asked: files call dimensions alike that are not.
bool TakesEverything(const Graph& graph, const Node& node) {
  const ValueType& x = graph.value(node.inputs[0]).type;
  if (!x.shape || node.since_version < 10) return false;
  const auto starts = Integers(graph, node.input(1), {}), ends = Integers(graph, node.input(2), {});
  if (!starts || !ends) return false;
  std::vector<int64_t> every_axis(starts->size());
  std::iota(every_axis.begin(), every_axis.end(), 0);
  const auto axes = Integers(graph, node.input(3), every_axis);
  const auto steps = Integers(graph, node.input(4), std::vector<int64_t>(starts->size(), 1));
  if (!axes || !steps || ends->size() != starts->size() || axes->size() != starts->size() ||
      steps->size() != starts->size()) {
    return false;
  }
  const int64_t largest = LargestExtent(*x.shape, x.element);
  for (size_t i = 0; i < starts->size(); ++i) {
    const auto axis = NormalizeAxis((*axes)[i], static_cast<int>(x.shape->size()));
    if (!axis.ok()) return false;
    const Dimension& dimension = (*x.shape)[static_cast<size_t>(*axis)];
    if (!SliceTakesAll(dimension, (*starts)[i], (*ends)[i], (*steps)[i], largest)) return false;
  }
  return true;
}

bool PadsNothing(const Graph& graph, const Node& node) {
  if (node.since_version < 11) return AreAll(node.attributes.Ints("pads"), 0);
  const auto pads = IntsConstant(graph, node.input(1));
  return pads && AreAll(*pads, 0);
}

bool PassesInputThrough(const Graph& graph, const GraphIndex& index, const Node& node) {
  if (node.Is("Identity")) return true;
  if (node.Is("Dropout")) {
    const bool mask_is_read = node.output(1) != kNoValue && index.use_count(node.output(1)) > 0;
    return !mask_is_read && node.input(2) == kNoValue && node.attributes.Int("is_test", 1) != 0;
  }
  if (node.Is("Cast")) {
    const ValueType& from = graph.value(node.inputs[0]).type;
    return from.is_tensor() && static_cast<int64_t>(from.element) == node.attributes.Int("to", 0);
  }
  if (node.Is("Pad")) return node.since_version > 1 && PadsNothing(graph, node);
  return node.Is("Slice") && TakesEverything(graph, node);
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
      if (in == kNoValue || !PassesInputThrough(graph, index, node)) {
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
