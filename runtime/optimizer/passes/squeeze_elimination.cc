#include <algorithm>
#include <unordered_map>

#include "runtime/graph/any_layout.h"
#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

constexpr int kImageRank = 4;

// What a Squeeze read, and which of its axes went.
struct Squeezed {
  ValueId image;
  std::vector<int64_t> axes;  // of the image, ascending
  int version;                // of the Squeeze
  ValueId axes_input;         // where it has them so
};

std::optional<std::vector<int64_t>> AxesOf(const Graph& graph, const Node& node, int rank) {
  auto axes = AxesOfReduction(graph, node);
  if (!axes || axes->empty()) return std::nullopt;
  for (int64_t& axis : *axes) {
    if (axis < -rank || axis >= rank) return std::nullopt;
    if (axis < 0) axis += rank;
  }
  std::sort(axes->begin(), axes->end());
  const bool repeats = std::adjacent_find(axes->begin(), axes->end()) != axes->end();
  return repeats ? std::nullopt : axes;
}

// Rebuilds the node list in order, each Squeeze written behind what it moved behind.
class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph) {}

  bool Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      if (node.Is("Squeeze")) {
        Remember(node);
      } else if (node.Is("Unsqueeze")) {
        TakeBack(node);
      } else if (auto rewritten = OnImages(node)) {
        Move(*rewritten, node);
        continue;
      }
      graph_.nodes.push_back(std::move(node));
    }
    return changed_;
  }

 private:
  const Squeezed* Find(ValueId id) const {
    const auto found = squeezed_.find(id);
    return found == squeezed_.end() ? nullptr : &found->second;
  }

  void Remember(const Node& node) {
    const ValueType& type = graph_.value(node.inputs[0]).type;
    if (!type.is_tensor() || !IsFloatingPoint(type.element) || !type.shape) return;
    const int rank = static_cast<int>(type.shape->size());
    auto axes = AxesOf(graph_, node, rank);
    if (rank != kImageRank || !axes || axes->size() != 1) return;
    if (!RankOf(graph_, node.outputs[0])) return;
    const bool are_ones = std::all_of(axes->begin(), axes->end(), [&](int64_t axis) {
      return (*type.shape)[static_cast<size_t>(axis)].value == 1;
    });
    if (!are_ones) return;
    squeezed_[node.outputs[0]] = {node.inputs[0], std::move(*axes), node.since_version,
                                  node.input(1)};
  }

  // An Unsqueeze of the axes that went gives what was squeezed.
  void TakeBack(Node& node) {
    const Squeezed* from = Find(node.inputs[0]);
    const auto rank = RankOf(graph_, node.outputs[0]);
    if (from == nullptr || !rank || AxesOf(graph_, node, *rank) != from->axes) return;
    node.op_type = "Identity";
    node.inputs = {from->image};
    node.attributes = {};
    changed_ = true;
  }

  // The node as it computes the same before its operands are squeezed; nullopt for nodes that do
  // not.
  std::optional<Node> OnImages(const Node& node) const {
    if (node.outputs.size() != 1 || node.inputs.empty()) return std::nullopt;
    if (!RankOf(graph_, node.outputs[0])) return std::nullopt;  // the image's follows from it
    if (node.Is("Concat")) return Concatenated(node);
    if (IsBinaryInAnyLayout(node)) return OfTwo(node);
    const Squeezed* x = Find(node.inputs[0]);
    if (x == nullptr) return std::nullopt;
    Node on_image = node;
    on_image.inputs[0] = x->image;
    if (node.Is("Pad")) return SetPads(on_image, *x) ? std::optional(on_image) : std::nullopt;
    const bool keeps_channels = x->axes.front() > 1;
    const bool is_normalization = node.Is("BatchNormalization") && keeps_channels;
    if (!IsElementwiseInAnyLayout(node) && !is_normalization) return std::nullopt;
    return on_image;
  }

  std::optional<Node> Concatenated(const Node& node) const {
    const Squeezed* first = Find(node.inputs[0]);
    if (first == nullptr) return std::nullopt;
    Node on_images = node;
    for (ValueId& id : on_images.inputs) {
      const Squeezed* part = Find(id);
      if (part == nullptr || part->axes != first->axes) return std::nullopt;
      id = part->image;
    }
    int64_t axis = node.attributes.Int("axis", 0);
    const int64_t rank = *RankOf(graph_, node.inputs[0]);
    if (axis < -rank || axis >= rank) return std::nullopt;
    if (axis < 0) axis += rank;
    for (const int64_t squeezed : first->axes) axis += squeezed <= axis;
    on_images.attributes.Set("axis", axis);
    return on_images;
  }

  // Of two squeezed alike, or one and a constant, which gets the axes.
  std::optional<Node> OfTwo(const Node& node) const {
    const Squeezed *a = Find(node.inputs[0]), *b = Find(node.inputs[1]);
    Node on_images = node;
    if (a != nullptr) on_images.inputs[0] = a->image;
    if (b != nullptr) on_images.inputs[1] = b->image;
    if (a != nullptr && b != nullptr) {
      const bool alike = a->axes == b->axes && RankOf(graph_, a->image) == RankOf(graph_, b->image);
      return alike ? std::optional(on_images) : std::nullopt;
    }
    if (a == nullptr && b == nullptr) return std::nullopt;
    const size_t other = a == nullptr ? 0 : 1;
    const auto constant = WithAxes(node.inputs[other], a == nullptr ? *b : *a);
    if (!constant) return std::nullopt;
    on_images.inputs[other] = *constant;
    return on_images;
  }

  // An initializer as it broadcasts to the image as it did to what was squeezed.
  std::optional<ValueId> WithAxes(ValueId id, const Squeezed& squeezed) const {
    const auto found = graph_.initializers.find(id);
    if (found == graph_.initializers.end()) return std::nullopt;
    const Shape& shape = found->second.shape();
    const int rank = *RankOf(graph_, squeezed.image);
    const int lacking = rank - static_cast<int>(squeezed.axes.size()) - shape.rank();
    if (lacking < 0) return std::nullopt;
    if (shape.ElementCount() == 1) return id;
    std::vector<int64_t> extents(static_cast<size_t>(lacking), 1);
    extents.insert(extents.end(), shape.begin(), shape.end());
    for (const int64_t axis : squeezed.axes) extents.insert(extents.begin() + axis, 1);
    const auto tensor = found->second.Materialize();
    if (!tensor.ok()) return std::nullopt;
    const std::string hint = graph_.value(id).name;
    return graph_.AddInitializer(hint, tensor->Reshaped(Shape(extents)));
  }

  // The image's other axes are padded, those that went are not.
  bool SetPads(Node& pad, const Squeezed& squeezed) const {
    if (pad.since_version < 2 || pad.input(3) != kNoValue) return false;
    const bool by_attribute = pad.since_version < 11;
    auto pads = by_attribute ? pad.attributes.Ints("pads") : IntsConstant(graph_, pad.input(1));
    const auto rank = static_cast<size_t>(*RankOf(graph_, squeezed.image));
    const size_t sides = 2 * (rank - squeezed.axes.size());
    if (!pads || pads->size() != sides) return false;
    std::vector<int64_t> behind(pads->begin() + static_cast<std::ptrdiff_t>(sides / 2),
                                pads->end());
    pads->resize(sides / 2);
    for (const int64_t axis : squeezed.axes) {
      pads->insert(pads->begin() + axis, 0);
      behind.insert(behind.begin() + axis, 0);
    }
    pads->insert(pads->end(), behind.begin(), behind.end());
    if (by_attribute) {
      pad.attributes.Set("pads", *pads);
    } else {
      const std::string hint = graph_.value(pad.inputs[1]).name;
      pad.inputs[1] =
          graph_.AddInitializer(hint, Tensor::Of<int64_t>(Shape{static_cast<int64_t>(pads->size())},
                                                          std::span<const int64_t>(*pads)));
    }
    return true;
  }

  void Move(Node on_images, const Node& node) {
    const ValueId out = node.outputs[0];
    const Squeezed from = *FirstOf(node);
    ValueType type = graph_.value(out).type;
    for (const int64_t axis : from.axes)
      type.shape->insert(type.shape->begin() + axis, Dimension(1));
    const std::string hint = graph_.value(out).name + "_image";
    const ValueId image = graph_.AddUniqueValue(hint, std::move(type));
    on_images.outputs = {image};
    graph_.nodes.push_back(std::move(on_images));
    Node squeeze;
    squeeze.op_type = "Squeeze";
    squeeze.since_version = from.version;
    squeeze.inputs = {image};
    if (from.axes_input == kNoValue) {
      squeeze.attributes.Set("axes", from.axes);
    } else {
      squeeze.inputs.push_back(from.axes_input);
    }
    squeeze.outputs = {out};
    graph_.nodes.push_back(std::move(squeeze));
    squeezed_[out] = {image, from.axes, from.version, from.axes_input};
    changed_ = true;
  }

  const Squeezed* FirstOf(const Node& node) const {
    const Squeezed* first = Find(node.inputs[0]);
    return first != nullptr ? first : Find(node.inputs[1]);
  }

  Graph& graph_;
  std::unordered_map<ValueId, Squeezed> squeezed_;  // by what the Squeeze gives
  bool changed_ = false;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "squeeze"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    return Rewriter(graph).Run();
  }
};

}  // namespace

const GraphPass* SqueezeElimination() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
