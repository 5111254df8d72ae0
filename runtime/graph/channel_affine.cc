#include "runtime/graph/channel_affine.h"

#include <cmath>

namespace onnxd {

const Initializer* FloatConstant(const Graph& graph, ValueId id) {
  const auto found = graph.initializers.find(id);
  const bool usable = found != graph.initializers.end() && found->second.type() == DataType::kFloat;
  return usable ? &found->second : nullptr;
}

Result<std::optional<ChannelAffine>> ChannelAffineOf(const Graph& graph, const Node& node,
                                                     int64_t channels) {
  if (node.attributes.Int("training_mode", 0) != 0) return std::optional<ChannelAffine>();
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) return std::optional<ChannelAffine>();
  }
  std::vector<Tensor> parameters;  // gamma, beta, mean, variance
  for (size_t i = 1; i < 5; ++i) {
    const Initializer* parameter = FloatConstant(graph, node.input(i));
    if (parameter == nullptr || !(parameter->shape() == Shape{channels})) {
      return std::optional<ChannelAffine>();
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor, parameter->Materialize());
    parameters.push_back(std::move(tensor));
  }
  const float epsilon = node.attributes.Float("epsilon", 1e-5f);
  ChannelAffine affine;
  for (int64_t c = 0; c < channels; ++c) {
    const float scale =
        parameters[0].data<float>()[c] / std::sqrt(parameters[3].data<float>()[c] + epsilon);
    affine.scale.push_back(scale);
    affine.shift.push_back(parameters[1].data<float>()[c] - parameters[2].data<float>()[c] * scale);
  }
  return std::optional(std::move(affine));
}

}  // namespace onnxd
