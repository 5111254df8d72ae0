#include <algorithm>

#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

std::vector<int64_t> PerAxis(const Node& node, const char* name, size_t axes, int64_t fallback) {
  std::vector<int64_t> values = node.attributes.Ints(name);
  if (values.empty()) values.assign(axes, fallback);
  return values;
}

// The padding of the Conv that stands for the node: begins, then ends. Empty where there is none.
std::vector<int64_t> ConvPads(const Node& node, const Shape& weights) {
  const auto axes = static_cast<size_t>(weights.rank() - 2);
  const auto strides = PerAxis(node, "strides", axes, 1);
  const auto dilations = PerAxis(node, "dilations", axes, 1);
  const auto added = PerAxis(node, "output_padding", axes, 0);
  auto pads = PerAxis(node, "pads", 2 * axes, 0);
  const std::string automatic = node.attributes.String("auto_pad", "NOTSET");
  if (!node.attributes.Ints("output_shape").empty() || strides.size() != axes ||
      dilations.size() != axes || added.size() != axes || pads.size() != 2 * axes ||
      (automatic != "NOTSET" && automatic != "VALID")) {
    return {};
  }
  constexpr int64_t kMaxExtent = 1 << 20;
  for (size_t axis = 0; axis < axes; ++axis) {
    const int64_t kernel = weights[static_cast<int>(axis) + 2];
    if (strides[axis] != 1 || dilations[axis] < 1 || dilations[axis] > kMaxExtent || kernel < 1 ||
        kernel > kMaxExtent) {
      return {};
    }
    const int64_t reach = (kernel - 1) * dilations[axis];
    int64_t& begin = pads[axis];
    int64_t& end = pads[axes + axis];
    if (std::min(begin, end) < 0 || std::max(begin, end) > reach || added[axis] < 0 ||
        added[axis] > kMaxExtent) {
      return {};
    }
    begin = reach - begin;
    end = reach - end + added[axis];
  }
  return pads;
}

// w[in, out / group, taps...] with taps in reverse, as Conv wants it: [out, in / group, taps...].
Result<Tensor> Turned(const Tensor& w, int64_t group) {
  const Shape& shape = w.shape();
  const int64_t in = shape[0] / group, out = shape[1];
  const int64_t taps = shape.ElementCount(2, shape.rank());
  Shape turned = shape;
  turned[0] = out * group;
  turned[1] = in;
  ONNXD_ASSIGN_OR_RETURN(Tensor result, Tensor::Create(DataType::kFloat, turned));
  float* to = result.mutable_data<float>();
  for (int64_t g = 0; g < group; ++g) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        const float* from = w.data<float>() + ((g * in + i) * out + o) * taps;
        to = std::reverse_copy(from, from + taps, to);
      }
    }
  }
  return result;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "conv_transpose"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("ConvTranspose")) continue;
      const auto weights = graph.initializers.find(node.inputs[1]);
      if (weights == graph.initializers.end() || weights->second.type() != DataType::kFloat ||
          weights->second.shape().rank() < 3) {
        continue;
      }
      const int64_t group = node.attributes.Int("group", 1);
      const auto pads = ConvPads(node, weights->second.shape());
      if (pads.empty() || group < 1 || weights->second.shape()[0] % group != 0) continue;
      ONNXD_ASSIGN_OR_RETURN(const Tensor old, weights->second.Materialize());
      ONNXD_ASSIGN_OR_RETURN(Tensor turned, Turned(old, group));
      node.op_type = "Conv";
      for (const char* attribute : {"output_padding", "auto_pad", "kernel_shape"}) {
        node.attributes.Erase(attribute);
      }
      node.attributes.Set("pads", pads);
      node.inputs[1] =
          graph.AddInitializer(graph.value(node.inputs[1]).name + "_turned", std::move(turned));
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* ConvTransposeAsConv() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
