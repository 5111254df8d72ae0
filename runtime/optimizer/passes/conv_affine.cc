#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "runtime/graph/channel_affine.h"
#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

bool IsConvolution(const Node& node) { return node.Is("Conv") || node.Is("ConvTranspose"); }

// The channels of a convolution's result, by its weights; 0 where they fit no convolution.
int64_t ChannelsOf(const Node& conv, const Shape& weights) {
  const int64_t group = conv.attributes.Int("group", 1);
  if (weights.rank() < 3 || group < 1) return 0;
  if (conv.Is("Conv")) return weights[0];
  const bool fits = weights[0] % group == 0 && weights[1] <= (int64_t{1} << 31) / group;
  return fits ? weights[1] * group : 0;
}

// One number for each channel of a convolution's result of `rank` axes, to whose pixels the
// constant is broadcast alike; empty where it is not.
Result<std::vector<float>> PerChannel(const Graph& graph, ValueId id, int rank, int64_t channels) {
  const Initializer* constant = FloatConstant(graph, id);
  if (constant == nullptr || constant->shape().rank() > rank) return std::vector<float>();
  const Shape& shape = constant->shape();
  const int axis = shape.rank() - (rank - 1);
  const int64_t count = shape.ElementCount();
  const bool is_row = axis >= 0 && shape[axis] == channels && count == channels;
  if (!is_row && count != 1) return std::vector<float>();
  ONNXD_ASSIGN_OR_RETURN(const Tensor tensor, constant->Materialize());
  std::vector<float> row(static_cast<size_t>(channels), *tensor.data<float>());
  if (is_row) row.assign(tensor.data<float>(), tensor.data<float>() + channels);
  return row;
}

// What the node makes of each channel of x; nullopt for any other node.
Result<std::optional<ChannelAffine>> AffineOf(const Graph& graph, const Node& node, ValueId x,
                                              int rank, int64_t channels) {
  if (node.Is("BatchNormalization")) return ChannelAffineOf(graph, node, channels);
  const bool is_sum = node.Is("Add"), is_difference = node.Is("Sub"), is_quotient = node.Is("Div");
  if (!is_sum && !is_difference && !is_quotient && !node.Is("Mul")) {
    return std::optional<ChannelAffine>();
  }
  const bool is_first = node.inputs[0] == x;
  if (node.since_version < 7 || (!is_first && (is_difference || is_quotient))) {
    return std::optional<ChannelAffine>();
  }
  ONNXD_ASSIGN_OR_RETURN(std::vector<float> row,
                         PerChannel(graph, GraphMatcher::OtherOperand(node, x), rank, channels));
  if (row.empty()) return std::optional<ChannelAffine>();
  ChannelAffine affine;
  if (is_sum || is_difference) {
    affine.scale.assign(row.size(), 1.0f);
    for (float& number : row) number = is_sum ? number : -number;
    affine.shift = std::move(row);
  } else {
    affine.shift.assign(row.size(), 0.0f);
    for (float& number : row) number = is_quotient ? 1 / number : number;
    const bool finite =
        std::all_of(row.begin(), row.end(), [](float s) { return std::isfinite(s); });
    if (!finite) return std::optional<ChannelAffine>();  // zero times infinity is not what x / 0 is
    affine.scale = std::move(row);
  }
  return std::optional(std::move(affine));
}

// W * scale, by the channel of the result.
Result<Tensor> Scaled(const Node& conv, const Tensor& weights, const std::vector<float>& scale) {
  const Shape& shape = weights.shape();
  ONNXD_ASSIGN_OR_RETURN(Tensor scaled, Tensor::Create(DataType::kFloat, shape));
  const bool transposed = conv.Is("ConvTranspose");
  const int64_t filters = transposed ? shape[0] * shape[1] : shape[0];
  const int64_t size = weights.ElementCount() / std::max<int64_t>(filters, 1);
  const int64_t of_group = transposed ? shape[0] / conv.attributes.Int("group", 1) : 1;
  for (int64_t filter = 0; filter < filters; ++filter) {
    const int64_t in = transposed ? filter / shape[1] : 0;
    const int64_t channel = transposed ? in / of_group * shape[1] + filter % shape[1] : filter;
    for (int64_t j = filter * size; j < (filter + 1) * size; ++j) {
      scaled.mutable_data<float>()[j] =
          weights.data<float>()[j] * scale[static_cast<size_t>(channel)];
    }
  }
  return scaled;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "conv_affine"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  // In order, so that a convolution takes one after the other.
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphIndex index(graph);
    std::unordered_map<ValueId, size_t> convolutions;  // by result
    std::vector<bool> removed(graph.nodes.size(), false);
    bool changed = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (IsConvolution(node)) convolutions[node.outputs[0]] = i;
      for (const ValueId x : node.inputs) {
        const auto found = convolutions.find(x);
        if (found == convolutions.end() || index.use_count(x) != 1) continue;
        Node& conv = graph.nodes[found->second];
        ONNXD_ASSIGN_OR_RETURN(const bool folded, Fold(graph, conv, node, x));
        if (!folded) continue;
        conv.outputs[0] = node.outputs[0];
        convolutions[node.outputs[0]] = found->second;
        removed[i] = changed = true;
        break;
      }
    }
    size_t position = 0;
    std::erase_if(graph.nodes, [&](const Node&) { return removed[position++]; });
    return changed;
  }

 private:
  // W' = W * scale and b' = b * scale + shift.
  static Result<bool> Fold(Graph& graph, Node& conv, const Node& node, ValueId x) {
    const Initializer* weights = FloatConstant(graph, conv.inputs[1]);
    const Initializer* bias = FloatConstant(graph, conv.input(2));
    const bool has_bias = conv.input(2) != kNoValue;
    const int64_t channels = weights != nullptr ? ChannelsOf(conv, weights->shape()) : 0;
    if (channels == 0 || (has_bias && (bias == nullptr || !(bias->shape() == Shape{channels})))) {
      return false;
    }
    ONNXD_ASSIGN_OR_RETURN(const auto affine,
                           AffineOf(graph, node, x, weights->shape().rank(), channels));
    if (!affine) return false;
    const std::vector<float>& scale = affine->scale;
    ONNXD_ASSIGN_OR_RETURN(Tensor new_bias, Tensor::Create(DataType::kFloat, Shape{channels}));
    std::copy(affine->shift.begin(), affine->shift.end(), new_bias.mutable_data<float>());
    if (has_bias) {
      ONNXD_ASSIGN_OR_RETURN(const Tensor old_bias, bias->Materialize());
      for (int64_t c = 0; c < channels; ++c) {
        new_bias.mutable_data<float>()[c] +=
            old_bias.data<float>()[c] * scale[static_cast<size_t>(c)];
      }
    }
    const std::string hint = graph.value(conv.inputs[1]).name;
    if (std::any_of(scale.begin(), scale.end(), [](float s) { return s != 1; })) {
      ONNXD_ASSIGN_OR_RETURN(const Tensor old_weights, weights->Materialize());
      ONNXD_ASSIGN_OR_RETURN(Tensor scaled, Scaled(conv, old_weights, scale));
      conv.inputs[1] = graph.AddInitializer(hint + "_folded", std::move(scaled));
    }
    conv.inputs.resize(3, kNoValue);
    conv.inputs[2] = graph.AddInitializer(hint + "_bias", std::move(new_bias));
    return true;
  }
};

}  // namespace

const GraphPass* ConvAffineFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
