#include "runtime/providers/cpu/onednn/passes/wide_groups.h"

#include <algorithm>

#include "runtime/providers/cpu/group_conv.h"
#include "runtime/providers/cpu/onednn/own_products.h"

namespace onnxd {
namespace {

constexpr int64_t kWide = 8;  // channels: a register of AVX2

// w[out, in / group, taps...] for `merged` groups in one: [out, merged * in / group, taps...].
Result<Tensor> Widened(const Tensor& w, int64_t group, int64_t merged) {
  Shape shape = w.shape();
  const int64_t row = shape.ElementCount(1, shape.rank()), out = shape[0] / group;
  shape[1] *= merged;
  ONNXD_ASSIGN_OR_RETURN(Tensor wide, Tensor::Create(DataType::kFloat, shape));
  float* to = wide.mutable_data<float>();
  std::fill_n(to, shape.ElementCount(), 0.0f);
  for (int64_t i = 0; i < shape[0]; ++i) {
    std::copy_n(w.data<float>() + i * row, row, to + (i * merged + i / out % merged) * row);
  }
  return wide;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "wide_groups"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    if (!onednn::OwnProductsAreFaster()) return false;
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("ConvChannelsLast", "onnxd")) continue;
      ONNXD_ASSIGN_OR_RETURN(const bool widened, TryWiden(graph, node));
      changed = changed || widened;
    }
    return changed;
  }

 private:
  static Result<bool> TryWiden(Graph& graph, Node& node) {
    const int64_t group = node.attributes.Int("group", 1);
    const auto weights = graph.initializers.find(node.inputs[1]);
    if (weights == graph.initializers.end() || weights->second.type() != DataType::kFloat ||
        weights->second.shape().rank() != 4 || group < 2) {
      return false;
    }
    const Shape& w = weights->second.shape();
    if (GroupConv::Takes(node.attributes, w)) return false;
    const int64_t channels = w[1];
    if (channels < 2 || channels >= kWide || kWide % channels != 0 || w[0] % group != 0) {
      return false;
    }
    const int64_t merged = kWide / channels;
    if (group % merged != 0) return false;
    ONNXD_ASSIGN_OR_RETURN(const Tensor old, weights->second.Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor wide, Widened(old, group, merged));
    node.attributes.Set("group", group / merged);
    const std::string name = graph.value(node.inputs[1]).name + "_wide";
    node.inputs[1] = graph.AddInitializer(name, std::move(wide));
    return true;
  }
};

}  // namespace

const GraphPass* WideGroups() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
