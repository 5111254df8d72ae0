#include <algorithm>

#include "runtime/graph/channel_affine.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "conv_batch_normalization"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphIndex index(graph);
    bool changed = false;
    std::vector<bool> removed(graph.nodes.size(), false);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& normalization = graph.nodes[i];
      if (!normalization.Is("BatchNormalization")) continue;
      const int producer = index.producer(normalization.inputs[0]);
      if (producer < 0 || !graph.nodes[static_cast<size_t>(producer)].Is("Conv")) continue;
      if (index.use_count(normalization.inputs[0]) != 1) continue;
      ONNXD_ASSIGN_OR_RETURN(
          const bool folded,
          Fold(graph, graph.nodes[static_cast<size_t>(producer)], normalization));
      if (!folded) continue;
      graph.nodes[static_cast<size_t>(producer)].outputs[0] = normalization.outputs[0];
      removed[i] = true;
      changed = true;
    }
    std::vector<Node> kept;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (!removed[i]) kept.push_back(std::move(graph.nodes[i]));
    }
    graph.nodes = std::move(kept);
    return changed;
  }

 private:
  // W' = W * scale and b' = b * scale + shift.
  static Result<bool> Fold(Graph& graph, Node& conv, const Node& normalization) {
    const Initializer* weights = FloatConstant(graph, conv.inputs[1]);
    const bool has_bias = conv.input(2) != kNoValue;
    const Initializer* bias = FloatConstant(graph, conv.input(2));
    if (weights == nullptr || weights->shape().rank() < 3 || (has_bias && bias == nullptr)) {
      return false;
    }
    const int64_t channels = weights->shape()[0];
    ONNXD_ASSIGN_OR_RETURN(const auto affine, ChannelAffineOf(graph, normalization, channels));
    if (!affine) return false;
    ONNXD_ASSIGN_OR_RETURN(const Tensor old_weights, weights->Materialize());
    Tensor old_bias;
    if (has_bias) {
      if (!(bias->shape() == Shape{channels})) return false;
      ONNXD_ASSIGN_OR_RETURN(old_bias, bias->Materialize());
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor new_weights,
                           Tensor::Create(DataType::kFloat, old_weights.shape()));
    ONNXD_ASSIGN_OR_RETURN(Tensor new_bias, Tensor::Create(DataType::kFloat, Shape{channels}));
    const int64_t filter = old_weights.ElementCount() / std::max<int64_t>(channels, 1);
    for (int64_t c = 0; c < channels; ++c) {
      const float scale = affine->scale[static_cast<size_t>(c)];
      for (int64_t j = c * filter; j < (c + 1) * filter; ++j) {
        new_weights.mutable_data<float>()[j] = old_weights.data<float>()[j] * scale;
      }
      const float b = has_bias ? old_bias.data<float>()[c] : 0.0f;
      new_bias.mutable_data<float>()[c] = b * scale + affine->shift[static_cast<size_t>(c)];
    }
    const std::string hint = graph.value(conv.inputs[1]).name;
    conv.inputs.resize(3, kNoValue);
    conv.inputs[1] = graph.AddInitializer(hint + "_folded", std::move(new_weights));
    conv.inputs[2] = graph.AddInitializer(hint + "_bias", std::move(new_bias));
    return true;
  }
};

}  // namespace

const GraphPass* ConvBatchNormalizationFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
