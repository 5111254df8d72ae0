#include "runtime/providers/cpu/onednn/passes/winograd.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
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
constexpr int64_t kLeastPhase = 6;  // of an image's rows and columns that a dilation puts together
constexpr int64_t kLeastChannels = 32;  // fewer make the transforms the larger part
constexpr int64_t kChannelStep = 16;

// Numbers that packed weights may add to those of the model: a half, or 4 MB, which no machine
// misses; but a fifth for those that fewer pixels read, which save less time.
constexpr int64_t kAlwaysAllowed = 1 << 20;
constexpr int64_t kManyPixels = kLargeExtent * kLargeExtent;

int64_t WeightElements(const Graph& graph, const Node& node) {
  const auto weights = graph.initializers.find(node.input(1));
  return weights == graph.initializers.end() ? 0 : weights->second.shape().ElementCount();
}

// Rows or columns, the fewer of them, of the result or of what a dilation takes of it together.
int64_t ExtentOf(const Graph& graph, const Node& node) {
  const SymbolicShape& y = *graph.value(node.outputs[0]).type.shape;
  std::vector<int64_t> dilations = node.attributes.Ints("dilations");
  dilations.resize(2, 1);
  return std::min(onednn::UsualExtent(y[1]) / dilations[0],
                  onednn::UsualExtent(y[2]) / dilations[1]);
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
  if (!AreAll(node.attributes.Ints("strides"), 1)) return false;
  for (const ValueId id : {node.inputs[0], node.outputs[0]}) {
    const auto& shape = graph.value(id).type.shape;
    if (!shape || shape->size() != 4) return false;
    for (const size_t axis : {1, 2}) {
      if (onednn::UsualExtent((*shape)[axis]) < kLeastExtent) return false;
    }
  }
  return AreAll(node.attributes.Ints("dilations"), 1) || ExtentOf(graph, node) >= kLeastPhase;
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
  for (const char* name : {"pads", "dilations"}) {
    for (const int64_t number : node.attributes.Ints(name)) key += StrCat(" ", number);
  }
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

// How many numbers weights have that are packed for tiles, beyond those of the model. Nodes with
// the same weights share what is packed for tiles of one size.
class PackedWeights {
 public:
  explicit PackedWeights(const Graph& graph) : graph_(graph), index_(graph) {
    int64_t total = 0;
    for (const auto& [id, initializer] : graph.initializers) {
      total += initializer.shape().ElementCount();
    }
    most_ = std::max(total / 2, kAlwaysAllowed);
    most_for_few_ = std::max(total / 5, kAlwaysAllowed);
  }

  void Count(const Node& node, int64_t tile) {
    if (readers_[{node.inputs[1], tile}]++ == 0) Add(node, Growth(node, tile));
  }

  bool HasRoomForSmallTiles(const Node& node) const {
    const auto small = readers_.find({node.inputs[1], 2});
    return (small != readers_.end() && small->second > 0) || HasRoom(node, Growth(node, 2));
  }

  // Tiles of 4 instead of 2 for so many nodes with the weights of this one; false without room.
  bool Enlarge(const Node& node, int64_t nodes) {
    int64_t& small = readers_[{node.inputs[1], 2}];
    int64_t& large = readers_[{node.inputs[1], 4}];
    const int64_t growth =
        (large == 0 ? Growth(node, 4) : 0) - (small == nodes ? Growth(node, 2) : 0);
    if (!HasRoom(node, growth)) return false;
    Add(node, growth);
    small -= nodes;
    large += nodes;
    return true;
  }

 private:
  bool HasManyPixels(const Node& node) const { return Pixels(graph_, node) >= kManyPixels; }

  bool HasRoom(const Node& node, int64_t growth) const {
    if (added_ + growth > most_) return false;
    return HasManyPixels(node) || added_for_few_ + growth <= most_for_few_;
  }

  void Add(const Node& node, int64_t growth) {
    added_ += growth;
    if (!HasManyPixels(node)) added_for_few_ += growth;
  }

  // (tile + 2)^2 numbers for each 9, which nobody reads any more if the weights are this node's.
  int64_t Growth(const Node& node, int64_t tile) const {
    const int64_t plain = index_.use_count(node.inputs[1]) == 1 ? 9 : 0;
    return WeightElements(graph_, node) * ((tile + 2) * (tile + 2) - plain) / 9;
  }

  const Graph& graph_;
  const GraphIndex index_;
  int64_t most_ = 0, most_for_few_ = 0, added_ = 0, added_for_few_ = 0;
  std::map<std::pair<ValueId, int64_t>, int64_t> readers_;  // of weights, for tiles of a size
};

// A convolution that gets tiles of 2 pixels, or of 4 if that is what is wanted and there is room.
struct Choice {
  int64_t wanted, tile;
};

// Choices are made one by one, by the time that they save for their memory.
class Selection {
 public:
  Selection(Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), packed_(graph) {}

  bool Run() {
    for (const Step& step : Steps()) {
      if (step.enlarges) {
        Enlarge(*step.node);
      } else {
        Take(*step.node);
      }
    }
    for (const auto& [node, choice] : choices_) *node = WithTile(std::move(*node), choice.tile);
    return !choices_.empty();
  }

 private:
  struct Step {
    Node* node;
    bool enlarges;
    int64_t saved;  // multiplications for each number of memory, in eighths of a pixel's
    int64_t weights;
  };

  // For 7 numbers more of 9, tiles of 2 save 5 of 9 multiplications. Those of 4 save 7 of 36 more,
  // for 20 numbers more, which is an eighth.
  std::vector<Step> Steps() {
    std::vector<Step> steps;
    for (Node& node : graph_.nodes) {
      if (node.Is("ConvWinograd", "onnxd")) packed_.Count(node, node.attributes.Int("tile", 4));
      if (!Fits(graph_, node)) continue;
      const int64_t pixels = Pixels(graph_, node);
      const int64_t weights = WeightElements(graph_, node);
      steps.push_back({&node, false, 8 * pixels, weights});
      steps.push_back({&node, true, pixels, weights});
    }
    // Of those that save alike the largest first, for which there may be no room later.
    std::ranges::stable_sort(steps, std::greater(),
                             [](const Step& step) { return std::pair(step.saved, step.weights); });
    return steps;
  }

  void Take(Node& node) {
    if (!packed_.HasRoomForSmallTiles(node)) return;
    const int64_t wanted = TileOf(graph_, node, context_);
    if (wanted == 0) return;
    packed_.Count(node, 2);
    Choice& choice = choices_[&node] = {wanted, 2};
    if (wanted == 4) waiting_[node.inputs[1]].push_back(&choice);
  }

  // All with the node's weights at once, which need not ask again where there is no room.
  void Enlarge(Node& node) {
    if (!choices_.contains(&node)) return;
    const std::vector<Choice*> alike = std::exchange(waiting_[node.inputs[1]], {});
    if (alike.empty() || !packed_.Enlarge(node, static_cast<int64_t>(alike.size()))) return;
    for (Choice* choice : alike) choice->tile = choice->wanted;
  }

  Graph& graph_;
  const PassContext& context_;
  PackedWeights packed_;
  std::map<Node*, Choice> choices_;
  std::map<ValueId, std::vector<Choice*>> waiting_;  // for tiles of 4, by weights
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "winograd"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision == Precision::kBfloat16) return false;  // its transforms need floats
    return Selection(graph, context).Run();
  }
};

}  // namespace

const GraphPass* WinogradSelection() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
