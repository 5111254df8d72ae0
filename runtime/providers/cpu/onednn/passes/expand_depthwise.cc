#include "runtime/providers/cpu/onednn/passes/expand_depthwise.h"

#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/depthwise.h"
#include "runtime/providers/cpu/onednn/passes/conv_nodes.h"

namespace onnxd {
namespace {

// Smaller images in between stay in the second-level cache anyway.
constexpr int64_t kLeastBytes = 768 << 10;

bool IsExpansion(const Graph& graph, const Node& node) {
  return IsPointwiseConv(graph, node) && node.input(3) == kNoValue;
}

// Products as deep as that gain more from digits on tiles, as ConvChannelsLast computes them, than
// from results that stay in a cache.
bool IsDigitsProduct(const Graph& graph, const Node& expand) {
  constexpr int64_t kLeastDepth = 128;
  const Shape* w = ConvWeightShape(graph, expand);
  return math::CurrentSimd().packed_digits_gemm != nullptr && w != nullptr &&
         (*w)[1] >= kLeastDepth && (*w)[1] <= math::kMostDigitDepth;
}

bool IsPlanar(const Node& node) { return node.Is("PlanarConv", "onnxd"); }

bool IsDepthwise(const Graph& graph, const Node& node) {
  const Shape* w = ConvWeightShape(graph, node);
  return w != nullptr && node.input(3) == kNoValue && node.attributes.Int("group", 1) == (*w)[0] &&
         DepthwiseConv::Takes(node.attributes, *w);
}

bool IsLarge(const Graph& graph, ValueId id) {
  const auto& shape = graph.value(id).type.shape;
  if (!shape || shape->size() != 4 || !(*shape)[3].known()) return false;
  const int64_t elements = SaturatingMultiply(onednn::UsualPixels(*shape), (*shape)[3].value);
  return elements >= kLeastBytes / static_cast<int64_t>(sizeof(float));
}

Node Fused(const Node& expand, const Node& depthwise) {
  Node node = depthwise;
  const Attributes& first = expand.attributes;
  node.attributes.Erase("group");
  const std::string activation = first.String("activation", "");
  if (!activation.empty()) {
    node.attributes.Set("expand_activation", activation);
    node.attributes.Set("expand_activation_params", first.Floats("activation_params"));
  }
  node.op_type = "ExpandDepthwise";
  if (IsPlanar(expand)) {
    node.op_type = "PlanarDepthwise";
    if (first.Has("auto_pad")) node.attributes.Set("expand_auto_pad", first.String("auto_pad", ""));
    for (const char* name : {"kernel_shape", "pads", "strides"}) {
      if (first.Has(name)) node.attributes.Set(StrCat("expand_", name), first.Ints(name));
    }
  }
  node.inputs = {expand.inputs[0], expand.inputs[1], expand.input(2), depthwise.inputs[1]};
  if (depthwise.input(2) != kNoValue) node.inputs.push_back(depthwise.inputs[2]);
  return node;
}

bool IsFused(const Node& node) {
  return node.Is("ExpandDepthwise", "onnxd") || node.Is("PlanarDepthwise", "onnxd");
}

// Whether `node` is a projection of what `expand`, which this pass made, gives; means that others
// read would have it computed twice.
bool IsProjection(const Graph& graph, const Node& expand, const Node& node) {
  constexpr int64_t kMostChannels = 64;
  const bool is_planar = expand.Is("PlanarDepthwise", "onnxd");
  if (!IsFused(expand) || expand.outputs.size() > 1 || expand.input(5) != kNoValue ||
      !IsPointwiseConv(graph, node) || node.attributes.Has("activation")) {
    return false;
  }
  const int64_t expanded = graph.initializers.at(expand.inputs[1]).shape()[0];
  return (*ConvWeightShape(graph, node))[0] <= kMostChannels &&
         (!is_planar || expanded <= math::CurrentSimd().gemm_width);
}

// Of those that depthwise loops apply themselves, whose results they sum up.
bool SumsUp(const Node& expand) {
  const std::string activation = expand.attributes.String("activation", "");
  return expand.outputs.size() == 1 && expand.input(5) == kNoValue &&
         (activation.empty() || activation == "Relu" || activation == "Clip" ||
          activation == "Silu");
}

Node Projected(const Node& expand, const Node& project) {
  Node node = expand;
  node.name = project.name;
  node.inputs.resize(8, kNoValue);
  node.inputs[5] = project.inputs[1];
  node.inputs[6] = project.input(2);
  node.inputs[7] = project.input(3);
  node.outputs = project.outputs;
  return node;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "expand_depthwise"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision == Precision::kBfloat16) return false;
    const GraphIndex index(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!IsDepthwise(graph, node)) continue;
      const Node* expand = ProducerForItAlone(graph, index, node);
      if (expand == nullptr || (!IsExpansion(graph, *expand) && !IsPlanar(*expand)) ||
          !IsLarge(graph, node.inputs[0]) || IsDigitsProduct(graph, *expand)) {
        continue;
      }
      node = Fused(*expand, node);  // the expansion is dead now
      changed = true;
    }
    for (Node& node : graph.nodes) {
      const Node* expand = ProducerForItAlone(graph, index, node);
      if (expand == nullptr || !IsProjection(graph, *expand, node)) continue;
      node = Projected(*expand, node);
      changed = true;
    }
    std::vector<bool> dropped(graph.nodes.size(), false);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& mean = graph.nodes[i];
      if (!mean.Is("GlobalAveragePoolChannelsLast", "onnxd")) continue;
      const int producer = index.producer(mean.inputs[0]);
      if (producer < 0) continue;
      Node& expand = graph.nodes[static_cast<size_t>(producer)];
      if (!IsFused(expand) || !SumsUp(expand)) continue;
      expand.outputs.push_back(mean.outputs[0]);
      dropped[i] = changed = true;
    }
    size_t position = 0;
    std::erase_if(graph.nodes, [&](const Node&) { return dropped[position++]; });
    return changed;
  }
};

}  // namespace

const GraphPass* ExpandDepthwiseFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
