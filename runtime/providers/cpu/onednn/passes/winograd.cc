#include "runtime/providers/cpu/onednn/passes/winograd.h"

#include <algorithm>

namespace onnxd {
namespace {

constexpr int64_t kLeastExtent = 12;    // rows and columns: smaller images are mostly border
constexpr int64_t kLargeExtent = 24;    // from here on tiles of 4 pixels pay for their weights
constexpr int64_t kLeastChannels = 32;  // fewer make the transforms the larger part
constexpr int64_t kChannelStep = 16;

bool IsOneOrAbsent(const std::vector<int64_t>& list) {
  return std::all_of(list.begin(), list.end(), [](int64_t x) { return x == 1; });
}

int64_t WeightElements(const Graph& graph, const Node& node) {
  const auto weights = graph.initializers.find(node.input(1));
  return weights == graph.initializers.end() ? 0 : weights->second.shape().ElementCount();
}

bool Fits(const Graph& graph, const Node& node) {
  if (!node.Is("ConvChannelsLast", "onnxd") || node.attributes.Int("group", 1) != 1) return false;
  const auto weights = graph.initializers.find(node.inputs[1]);
  if (weights == graph.initializers.end()) return false;
  const Shape& w = weights->second.shape();
  if (w.rank() != 4 || w[2] != 3 || w[3] != 3) return false;
  for (const int axis : {0, 1}) {
    if (w[axis] < kLeastChannels || w[axis] % kChannelStep != 0) return false;
  }
  if (!IsOneOrAbsent(node.attributes.Ints("strides")) ||
      !IsOneOrAbsent(node.attributes.Ints("dilations"))) {
    return false;
  }
  const auto& y = graph.value(node.outputs[0]).type.shape;
  if (!y || y->size() != 4) return false;
  for (const size_t axis : {1, 2}) {
    if (!(*y)[axis].known() || (*y)[axis].value < kLeastExtent) return false;
  }
  return true;
}

// Tiles of 4 for large images, otherwise of 2.
int64_t TileOf(const Graph& graph, const Node& node) {
  const SymbolicShape& y = *graph.value(node.outputs[0]).type.shape;
  return y[1].value >= kLargeExtent && y[2].value >= kLargeExtent ? 4 : 2;
}

// Elements that (tile + 2)^2 numbers for each 9 add.
int64_t Growth(const Graph& graph, const Node& node, int64_t tile) {
  return WeightElements(graph, node) * ((tile + 2) * (tile + 2) - 9) / 9;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "winograd"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision == Precision::kBfloat16) return false;  // its transforms need floats
    int64_t total = 0, added = 0;
    for (const auto& [id, initializer] : graph.initializers) {
      total += initializer.shape().ElementCount();
    }
    std::vector<Node*> candidates;
    for (Node& node : graph.nodes) {
      if (node.Is("ConvWinograd", "onnxd")) {
        added += Growth(graph, node, node.attributes.Int("tile", 4));
      }
      if (Fits(graph, node)) candidates.push_back(&node);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [&](const Node* a, const Node* b) {
      return WeightElements(graph, *a) < WeightElements(graph, *b);
    });
    bool changed = false;
    for (Node* node : candidates) {
      const int64_t tile = TileOf(graph, *node);
      added += Growth(graph, *node, tile);
      if (added > total / 5) break;
      node->op_type = "ConvWinograd";
      node->attributes.Set("tile", tile);
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* WinogradSelection() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
