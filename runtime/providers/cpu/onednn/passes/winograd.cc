#include "runtime/providers/cpu/onednn/passes/winograd.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"

namespace onnxd {
namespace {

// Rows and columns: smaller images are mostly border; from the second number on tiles of 4 pixels
// pay for their weights by rule, and from the third on surely, so that nobody measures.
constexpr int64_t kLeastExtent = 12, kLargeExtent = 24, kSureExtent = 48;
constexpr int64_t kLeastChannels = 32;  // fewer make the transforms the larger part
constexpr int64_t kChannelStep = 16;

// Numbers that packed weights may add to those of the model: a fifth, or 4 MB, which no machine
// misses; where tiles pay surely, a half.
constexpr int64_t kAlwaysAllowed = 1 << 20;

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
  if (!AreAll(node.attributes.Ints("strides"), 1) ||
      !AreAll(node.attributes.Ints("dilations"), 1)) {
    return false;
  }
  for (const ValueId id : {node.inputs[0], node.outputs[0]}) {
    const auto& shape = graph.value(id).type.shape;
    if (!shape || shape->size() != 4) return false;
    for (const size_t axis : {1, 2}) {
      if (onednn::UsualExtent((*shape)[axis]) < kLeastExtent) return false;
    }
  }
  return true;
}

int64_t ExtentOf(const Graph& graph, const Node& node) {
  const SymbolicShape& y = *graph.value(node.outputs[0]).type.shape;
  return std::min(onednn::UsualExtent(y[1]), onednn::UsualExtent(y[2]));
}

Node WithTile(Node node, int64_t tile) {
  node.op_type = "ConvWinograd";
  node.attributes.Set("tile", tile);
  return node;
}

// What the node reads, with one image.
std::vector<KernelRaceOperand> OperandsOf(const Graph& graph, const Node& node) {
  std::vector<KernelRaceOperand> operands;
  for (const ValueId id : node.inputs) {
    KernelRaceOperand& operand = operands.emplace_back();
    if (id == kNoValue) continue;
    operand.type = DataType::kFloat;
    const auto constant = graph.initializers.find(id);
    operand.is_constant = constant != graph.initializers.end();
    if (operand.is_constant) {
      operand.shape = constant->second.shape();
      continue;
    }
    const auto& shape = graph.value(id).type.shape;
    if (!shape) return {};
    std::vector<int64_t> sizes;
    for (size_t axis = 0; axis < shape->size(); ++axis) {
      const Dimension& size = (*shape)[axis];
      sizes.push_back(axis > 0 ? onednn::UsualExtent(size) : size.known() ? size.value : 1);
    }
    operand.shape = Shape(std::move(sizes));
  }
  return operands;
}

std::string RaceKey(const Node& node, std::span<const KernelRaceOperand> operands) {
  std::string key =
      StrCat("direct or Winograd in tiles of 2 or 4, ", math::CurrentSimd().name, ", ",
             node.attributes.String("activation", ""), " ", node.attributes.String("auto_pad", ""));
  for (const int64_t pad : node.attributes.Ints("pads")) key += StrCat(" ", pad);
  for (const KernelRaceOperand& operand : operands) key += ", " + operand.shape.ToString();
  return key;
}

// The tile that is fastest here, 0 for none.
int64_t TileOf(const Graph& graph, const Node& node, const PassContext& context) {
  const int64_t extent = ExtentOf(graph, node), by_rule = extent < kLargeExtent ? 2 : 4;
  if (!context.race || extent >= kSureExtent) return by_rule;
  const std::vector<KernelRaceOperand> operands = OperandsOf(graph, node);
  if (operands.empty()) return by_rule;
  const std::array candidates = {node, WithTile(node, 2), WithTile(node, 4)};
  return static_cast<int64_t>(context.race(RaceKey(node, operands), candidates, operands)) * 2;
}

int64_t Pixels(const Graph& graph, const Node& node) {
  const SymbolicShape& y = *graph.value(node.outputs[0]).type.shape;
  return onednn::UsualExtent(y[1]) * onednn::UsualExtent(y[2]);
}

// How many numbers weights have that are packed for tiles, beyond those of the model.
class PackedWeights {
 public:
  explicit PackedWeights(const Graph& graph) : graph_(graph), index_(graph) {
    int64_t total = 0;
    for (const auto& [id, initializer] : graph.initializers) {
      total += initializer.shape().ElementCount();
    }
    usual_ = std::max(total / 5, kAlwaysAllowed);
    most_ = std::max(total / 2, kAlwaysAllowed);
  }

  void Count(const Node& node, int64_t tile) {
    if (forms_.insert({node.inputs[1], tile}).second) added_ += Growth(node, tile);
  }

  // Counts those that there is room for. Nodes with the same weights share what is packed for tiles
  // of one size.
  bool Take(const Node& node, int64_t tile) {
    const bool is_there = forms_.contains({node.inputs[1], tile});
    if (!is_there && added_ + Growth(node, tile) > Allowed(node)) return false;
    Count(node, tile);
    return true;
  }

  // Where the smallest tiles have no room.
  bool IsFull(const Node& node) const {
    return !forms_.contains({node.inputs[1], 2}) && !forms_.contains({node.inputs[1], 4}) &&
           added_ + Growth(node, 2) > Allowed(node);
  }

 private:
  int64_t Allowed(const Node& node) const {
    return ExtentOf(graph_, node) >= kSureExtent ? most_ : usual_;
  }

  // (tile + 2)^2 numbers for each 9, which nobody reads any more if the weights are this node's.
  int64_t Growth(const Node& node, int64_t tile) const {
    const int64_t plain = index_.use_count(node.inputs[1]) == 1 ? 9 : 0;
    return WeightElements(graph_, node) * ((tile + 2) * (tile + 2) - plain) / 9;
  }

  const Graph& graph_;
  const GraphIndex index_;
  int64_t usual_ = 0, most_ = 0, added_ = 0;
  std::set<std::pair<ValueId, int64_t>> forms_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "winograd"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision == Precision::kBfloat16) return false;  // its transforms need floats
    PackedWeights packed(graph);
    std::vector<Node*> candidates;
    for (Node& node : graph.nodes) {
      if (node.Is("ConvWinograd", "onnxd")) packed.Count(node, node.attributes.Int("tile", 4));
      if (Fits(graph, node)) candidates.push_back(&node);
    }
    // The more pixels, the more multiplications the same weights save.
    std::stable_sort(candidates.begin(), candidates.end(), [&](const Node* a, const Node* b) {
      return Pixels(graph, *a) > Pixels(graph, *b);
    });
    bool changed = false;
    for (Node* node : candidates) {
      if (packed.IsFull(*node)) continue;
      const int64_t tile = TileOf(graph, *node, context);
      if (tile == 0 || !packed.Take(*node, tile)) continue;
      *node = WithTile(std::move(*node), tile);
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
