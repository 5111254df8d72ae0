#include <algorithm>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// The constant as a list of one number per channel, when it is added alike to every pixel of a
// convolution's result of `rank` axes.
std::optional<Tensor> PerChannel(const Graph& graph, ValueId id, int rank, int64_t channels) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || found->second.type() != DataType::kFloat) {
    return std::nullopt;
  }
  const Shape& shape = found->second.shape();
  const int channel_axis = shape.rank() - (rank - 1);
  if (shape.rank() > rank || channel_axis < 0 || shape[channel_axis] != channels ||
      shape.ElementCount() != channels) {
    return std::nullopt;
  }
  auto tensor = found->second.Materialize();
  auto row = Tensor::Create(DataType::kFloat, Shape{channels});
  if (!tensor.ok() || !row.ok()) return std::nullopt;
  std::copy_n(tensor->data<float>(), channels, row->mutable_data<float>());
  return std::move(*row);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "conv_bias"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& sum : graph.nodes) {
      if (!sum.Is("Add") || sum.since_version < 7) continue;
      for (const size_t side : {0, 1}) {
        const Node* conv = match.Producer(sum.inputs[side], "Conv");
        if (conv == nullptr || conv->input(2) != kNoValue ||
            match.index().use_count(conv->outputs[0]) != 1) {
          continue;
        }
        const auto weights = graph.initializers.find(conv->inputs[1]);
        if (weights == graph.initializers.end() || weights->second.shape().rank() < 3 ||
            weights->second.type() != DataType::kFloat) {
          continue;
        }
        const Shape& filters = weights->second.shape();
        auto bias = PerChannel(graph, sum.inputs[1 - side], filters.rank(), filters[0]);
        if (!bias) continue;
        Node biased = *conv;
        biased.inputs.resize(2);
        biased.inputs.push_back(graph.AddInitializer(
            graph.value(sum.inputs[1 - side]).name + "_bias", std::move(*bias)));
        biased.outputs = sum.outputs;
        sum = std::move(biased);
        changed = true;
        break;
      }
    }
    return changed;
  }
};

}  // namespace

const GraphPass* ConvBiasFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
