#include "runtime/providers/cpu/onednn/passes/volume_images.h"

#include <algorithm>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/ops/convolution.h"

namespace onnxd {
namespace {

constexpr int kRank = 5;
const std::vector<int64_t> kSwapped = {0, 2, 1, 3, 4};  // depth and channels, either way

// The extents of the axes from 2 on, all known.
std::optional<std::vector<int64_t>> Extents(const Graph& graph, ValueId id) {
  const auto& shape = graph.value(id).type.shape;
  if (!shape || shape->size() != kRank) return std::nullopt;
  std::vector<int64_t> extents;
  for (int axis = 2; axis < kRank; ++axis) {
    const Dimension& dimension = (*shape)[static_cast<size_t>(axis)];
    if (!dimension.known()) return std::nullopt;
    extents.push_back(dimension.value);
  }
  return extents;
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

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "volume_images"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    std::vector<Node> made;
    bool changed = false;
    const std::vector<Node> nodes = graph.nodes;
    for (const Node& node : nodes) {
      ONNXD_ASSIGN_OR_RETURN(const bool rewritten, TryRewrite(graph, node, made));
      if (!rewritten) made.push_back(node);
      changed = changed || rewritten;
    }
    if (changed) graph.nodes = std::move(made);
    return changed;
  }

 private:
  static Result<bool> TryRewrite(Graph& graph, const Node& node, std::vector<Node>& made) {
    if (!node.Is("Conv") && !node.Is("FusedConv", "com.microsoft")) return false;
    const auto weights = graph.initializers.find(node.input(1));
    const auto extents = Extents(graph, node.inputs[0]);
    if (weights == graph.initializers.end() || weights->second.shape().rank() != kRank ||
        weights->second.type() != DataType::kFloat || !extents || !IsFloat(graph, node.inputs[0]) ||
        node.attributes.Int("group", 1) != 1) {
      return false;
    }
    const auto& dims = weights->second.shape().dims();
    const auto window = PoolWindow(node, *extents, {dims.begin() + 2, dims.end()});
    if (!window.ok() || std::min(window->pads_begin[0], window->pads_end[0]) < 0) return false;
    ONNXD_ASSIGN_OR_RETURN(const Tensor plain, weights->second.Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor planes, PlanesAsChannels(plain));
    const std::string name = graph.value(node.outputs[0]).name;
    NodeWriter writer(graph, made, name);
    const int64_t channels = planes.shape()[1];
    Node conv = node;
    conv.inputs[0] = writer.Reshaped(PlanesOf(writer, node.inputs[0], *window),
                                     {-1, channels, (*extents)[1], (*extents)[2]});
    conv.inputs[1] = graph.AddInitializer(name + "_planes", std::move(planes));
    const int64_t out = dims[0];
    if (conv.input(3) != kNoValue) {
      conv.inputs[3] = writer.Reshaped(writer.Transposed(conv.inputs[3], kSwapped),
                                       {-1, out, window->output[1], window->output[2]});
    }
    SetWindow(conv, *window);
    const ValueId images = graph.AddUniqueValue(name + "_images");
    conv.outputs = {images};
    made.push_back(std::move(conv));
    const ValueId parted =
        writer.Reshaped(images, {-1, window->output[0], out, window->output[1], window->output[2]});
    writer.AddTo(node.outputs[0], "Transpose", {parted}, NodeWriter::Order(kSwapped));
    return true;
  }

  // x[batch, channels, depth, ...] as [batch, depth of the result, window * channels, ...].
  static ValueId PlanesOf(NodeWriter& writer, ValueId x, const Window& window) {
    ValueId planes = writer.Transposed(x, kSwapped);
    if (window.pads_begin[0] > 0 || window.pads_end[0] > 0) {
      planes = writer.Add("Pad", {planes, writer.Integers({0, window.pads_begin[0], 0, 0, 0, 0,
                                                           window.pads_end[0], 0, 0, 0})});
    }
    std::vector<ValueId> seen;
    const ValueId axis = writer.Integers({1}), step = writer.Integers({window.strides[0]});
    for (int64_t i = 0; i < window.kernel[0]; ++i) {
      const int64_t first = i * window.dilations[0];
      const int64_t end = first + (window.output[0] - 1) * window.strides[0] + 1;
      seen.push_back(writer.Add(
          "Slice", {planes, writer.Integers({first}), writer.Integers({end}), axis, step}));
    }
    if (seen.size() == 1) return seen.front();
    Attributes along;
    along.Set("axis", int64_t{2});
    return writer.Add("Concat", std::move(seen), std::move(along));
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
};

}  // namespace

const GraphPass* VolumeImages() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
