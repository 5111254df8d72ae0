#include "runtime/providers/cpu/onednn/passes/volume_images.h"

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"

namespace onnxd {
namespace {

constexpr int kRank = 5;
const std::vector<int64_t> kSwapped = {0, 2, 1, 3, 4};  // depth and channels, either way

// Depth, height and width. Where the planes' extents are not known, these are usual ones.
struct Extents {
  std::vector<int64_t> usual;
  bool has_known_planes = true;

  int64_t depth() const { return usual[0]; }
};

// Of volumes whose depth is known.
std::optional<Extents> ExtentsOf(const Graph& graph, ValueId id) {
  const auto& shape = graph.value(id).type.shape;
  if (!shape || shape->size() != kRank || !(*shape)[2].known()) return std::nullopt;
  Extents extents;
  for (size_t axis = 2; axis < kRank; ++axis) {
    extents.usual.push_back(onednn::UsualExtent((*shape)[axis]));
    extents.has_known_planes = extents.has_known_planes && (*shape)[axis].known();
  }
  return extents;
}

// Whether what is padded depends on the extents.
bool PadsByExtents(const Node& node) {
  return node.attributes.String("auto_pad", "NOTSET").starts_with("SAME");
}

// w[out, in, depth, ...] as w[out, depth * in, ...].
Result<Tensor> PlanesAsChannels(const Tensor& w) {
  const Shape& s = w.shape();
  const int64_t taps = s[3] * s[4];
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         Tensor::Create(DataType::kFloat, Shape{s[0], s[2] * s[1], s[3], s[4]}));
  float* to = out.mutable_data<float>();
  for (int64_t o = 0; o < s[0]; ++o) {
    for (int64_t plane = 0; plane < s[2]; ++plane) {
      for (int64_t i = 0; i < s[1]; ++i) {
        to = std::copy_n(w.data<float>() + ((o * s[1] + i) * s[2] + plane) * taps, taps, to);
      }
    }
  }
  return out;
}

bool IsConv(const Node& node) { return node.Is("Conv") || node.Is("FusedConv", "com.microsoft"); }

// Rebuilds the node list in order.
class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph) {}

  Result<bool> Run() {
    bool changed = false;
    const std::vector<Node> nodes = graph_.nodes;
    for (const Node& node : nodes) {
      ONNXD_ASSIGN_OR_RETURN(const bool rewritten, TryRewrite(node));
      if (!rewritten) made_.push_back(node);
      changed = changed || rewritten;
    }
    if (changed) graph_.nodes = std::move(made_);
    return changed;
  }

 private:
  Result<bool> TryRewrite(const Node& node) {
    if (!IsConv(node)) return false;
    const auto weights = graph_.initializers.find(node.input(1));
    const auto extents = ExtentsOf(graph_, node.inputs[0]);
    if (weights == graph_.initializers.end() || weights->second.shape().rank() != kRank ||
        weights->second.type() != DataType::kFloat || !extents ||
        !IsFloat(graph_, node.inputs[0]) || node.attributes.Int("group", 1) != 1 ||
        (!extents->has_known_planes && PadsByExtents(node))) {
      return false;
    }
    const auto& dims = weights->second.shape().dims();
    const auto window = PoolWindow(node, extents->usual, {dims.begin() + 2, dims.end()});
    if (!window.ok() || std::min(window->pads_begin[0], window->pads_end[0]) < 0) return false;
    ONNXD_ASSIGN_OR_RETURN(const Tensor plain, weights->second.Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor planes, PlanesAsChannels(plain));
    const std::string name = graph_.value(node.outputs[0]).name;
    NodeWriter writer(graph_, made_, name);
    const int64_t in = dims[1], out = dims[0];
    Node conv = node;
    conv.inputs[0] =
        Windows(ImagesOf(writer, node.inputs[0], in, *extents), name, *window, extents->depth());
    conv.inputs[1] = graph_.AddInitializer(name + "_planes", std::move(planes));
    const Extents outcome = {window->output, extents->has_known_planes};
    if (conv.input(3) != kNoValue) {
      conv.inputs[3] = ImagesOf(writer, conv.inputs[3], out, outcome);
    }
    SetWindow(conv, *window);
    const ValueId images = graph_.AddUniqueValue(name + "_images");
    images_[node.outputs[0]] = images;
    conv.outputs = {images};
    made_.push_back(std::move(conv));
    const ValueId parted =
        WithPlanes(writer, images, {-1, outcome.depth(), out}, images, 2, outcome);
    writer.AddTo(node.outputs[0], "Transpose", {parted}, NodeWriter::Order(kSwapped));
    return true;
  }

  // x[batch, channels, depth, height, width] as [batch * depth, channels, height, width].
  ValueId ImagesOf(NodeWriter& writer, ValueId x, int64_t channels, const Extents& extents) {
    const auto found = images_.find(x);
    if (found != images_.end()) return found->second;
    return images_[x] =
               WithPlanes(writer, writer.Transposed(x, kSwapped), {-1, channels}, x, 3, extents);
  }

  // `x` reshaped to `leading`, height and width: those of `planes` from `axis` on.
  static ValueId WithPlanes(NodeWriter& writer, ValueId x, std::vector<int64_t> leading,
                            ValueId planes, int64_t axis, const Extents& extents) {
    if (extents.has_known_planes) {
      leading.insert(leading.end(), extents.usual.begin() + 1, extents.usual.end());
      return writer.Reshaped(x, leading);
    }
    const ValueId shape = writer.Add("Shape", {planes});
    const ValueId plane =
        writer.Add("Slice", {shape, writer.Integers({axis}), writer.Integers({axis + 2})});
    Attributes along;
    along.Set("axis", int64_t{0});
    const ValueId whole = writer.Add("Concat", {writer.Integers(leading), plane}, along);
    return writer.Add("Reshape", {x, whole});
  }

  // What windows along the depth see of the images.
  ValueId Windows(ValueId images, const std::string& name, const Window& window, int64_t depth) {
    if (window.kernel[0] == 1 && window.strides[0] == 1 && window.pads_begin[0] == 0 &&
        window.pads_end[0] == 0) {
      return images;
    }
    Node node;
    node.name = name;
    node.op_type = "DepthWindows";
    node.domain = "onnxd";
    node.since_version = 1;
    node.inputs = {images};
    node.outputs = {graph_.AddUniqueValue(name + "_windows")};
    node.attributes.Set("depth", depth);
    node.attributes.Set("kernel", window.kernel[0]);
    node.attributes.Set("stride", window.strides[0]);
    node.attributes.Set("dilation", window.dilations[0]);
    node.attributes.Set("pads", std::vector<int64_t>{window.pads_begin[0], window.pads_end[0]});
    made_.push_back(node);
    return node.outputs[0];
  }

  static void SetWindow(Node& conv, const Window& window) {
    const auto of_image = [](const std::vector<int64_t>& values) {
      return std::vector<int64_t>(values.begin() + 1, values.end());
    };
    std::vector<int64_t> pads = of_image(window.pads_begin);
    pads.insert(pads.end(), window.pads_end.begin() + 1, window.pads_end.end());
    conv.attributes.Erase("auto_pad");
    conv.attributes.Set("kernel_shape", of_image(window.kernel));
    conv.attributes.Set("strides", of_image(window.strides));
    conv.attributes.Set("dilations", of_image(window.dilations));
    conv.attributes.Set("pads", std::move(pads));
  }

  Graph& graph_;
  std::vector<Node> made_;
  std::map<ValueId, ValueId> images_;  // of volumes, that are there
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "volume_images"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    // Before nodes are copied, of which some have a list as long as the model's file.
    const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      return IsConv(node) && RankOf(graph, node.inputs[0]) == kRank;
    });
    return any ? Rewriter(graph).Run() : Result<bool>(false);
  }
};

}  // namespace

const GraphPass* VolumeImages() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
