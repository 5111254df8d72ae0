#include <algorithm>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/providers/cpu/passes/quantized_operators.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

constexpr size_t kX = 0, kWeights = 1, kXZero = 2, kWeightsZero = 3;

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), nodes_(graph.nodes), match_(graph) {}

  Result<bool> Run() {
    std::vector<Node> made;
    bool changed = false;
    for (const Node& node : nodes_) {
      ONNXD_ASSIGN_OR_RETURN(const bool rewritten, Rewrite(node, made));
      if (!rewritten) made.push_back(node);
      changed = changed || rewritten;
    }
    if (changed) graph_.nodes = std::move(made);
    return changed;
  }

 private:
  // What a node makes of the sums of a convolution.
  struct Scaled {
    const Node* conv;
    ValueId x_scale = kNoValue;  // none: 1
    float weight_scale = 1;
  };

  Result<bool> Rewrite(const Node& node, std::vector<Node>& made) {
    ONNXD_ASSIGN_OR_RETURN(const bool biased, RewriteBiased(node, made));
    if (biased) return true;
    const std::optional<Scaled> found = FindScaled(node);
    if (!found) return false;
    return WriteConv(*found, node.outputs[0], made);
  }

  // Cast(ConvInteger + bias) is Cast(ConvInteger) + Cast(bias).
  Result<bool> RewriteBiased(const Node& node, std::vector<Node>& made) {
    if (!node.Is("Cast")) return false;
    const Node* sum = match_.Producer(node.inputs[0], "Add");
    if (sum == nullptr || match_.index().use_count(sum->outputs[0]) != 1) return false;
    for (const size_t side : {0, 1}) {
      Node cast = node;
      cast.inputs[0] = sum->inputs[side];
      const auto found = OfCast(cast);
      if (!found) continue;
      const ValueId product =
          graph_.AddUniqueValue(graph_.value(found->conv->outputs[0]).name + "_floats");
      ONNXD_ASSIGN_OR_RETURN(const bool written, WriteConv(*found, product, made));
      if (!written) return false;
      cast.inputs[0] = sum->inputs[1 - side];
      cast.outputs[0] = graph_.AddUniqueValue(graph_.value(cast.inputs[0]).name + "_floats");
      Node added = *sum;
      added.inputs = {product, cast.outputs[0]};
      added.outputs = node.outputs;
      made.push_back(std::move(cast));
      made.push_back(std::move(added));
      return true;
    }
    return false;
  }

  Result<bool> WriteConv(const Scaled& scaled, ValueId result, std::vector<Node>& made) {
    const Node& conv = *scaled.conv;
    ONNXD_ASSIGN_OR_RETURN(const std::optional<Tensor> weights, FloatWeights(conv, scaled));
    if (!weights) return false;
    const std::string name = graph_.value(result).name;
    NodeWriter writer(graph_, made, name);
    ValueId scale = scaled.x_scale;
    if (scale == kNoValue) scale = graph_.AddInitializer(name + "_one", Tensor::Scalar(1.0f));
    std::vector<ValueId> codes = {conv.inputs[kX], scale};
    if (conv.input(kXZero) != kNoValue) codes.push_back(conv.inputs[kXZero]);
    Node floats = conv;
    floats.op_type = "Conv";
    floats.since_version = 11;
    floats.inputs = {writer.Add("DequantizeLinear", std::move(codes)),
                     graph_.AddInitializer(name + "_weights", *weights)};
    floats.outputs = {result};
    made.push_back(std::move(floats));
    return true;
  }

  // Cast(ConvInteger) * (x_scale * scale of the weights), or Cast(ConvInteger) alone.
  std::optional<Scaled> FindScaled(const Node& node) const {
    if (node.Is("Mul")) return OfMul(node);
    if (!node.Is("Cast")) return std::nullopt;
    const auto found = OfCast(node);
    if (!found) return std::nullopt;
    // What is scaled becomes part of the product.
    for (const int consumer : match_.index().consumers(node.outputs[0])) {
      const Node& next = nodes_[static_cast<size_t>(consumer)];
      if (next.Is("Mul") && OfMul(next)) return std::nullopt;
    }
    return found;
  }

  std::optional<Scaled> OfMul(const Node& node) const {
    for (const size_t side : {0, 1}) {
      const Node* cast = match_.Producer(node.inputs[side], "Cast");
      const Node* scale = match_.Producer(node.inputs[1 - side], "Mul");
      if (cast == nullptr || scale == nullptr) continue;
      if (match_.index().use_count(cast->outputs[0]) != 1) continue;
      auto found = OfCast(*cast);
      const auto parts = match_.BesideConstant(*scale);
      if (!found || !parts || RankOf(graph_, parts->value) != 0 || !IsFloat(graph_, parts->value)) {
        continue;
      }
      const auto constant = ScalarConstant(graph_, parts->constant);
      if (!constant) continue;
      found->x_scale = parts->value;
      found->weight_scale = *constant;
      return found;
    }
    return std::nullopt;
  }

  std::optional<Scaled> OfCast(const Node& cast) const {
    if (!IsFloat(graph_, cast.outputs[0])) return std::nullopt;
    const Node* conv = match_.Producer(cast.inputs[0], "ConvInteger");
    if (conv == nullptr || match_.index().use_count(conv->outputs[0]) != 1) return std::nullopt;
    const ValueId zero = conv->input(kXZero);
    if (zero != kNoValue && RankOf(graph_, zero) != 0) return std::nullopt;
    return Scaled{conv};
  }

  // Less their zero points, one or one per filter, and scaled. nullopt where they are not constant.
  Result<std::optional<Tensor>> FloatWeights(const Node& conv, const Scaled& scaled) const {
    const auto codes = graph_.initializers.find(conv.inputs[kWeights]);
    if (codes == graph_.initializers.end() || codes->second.shape().rank() < 3) {
      return std::optional<Tensor>();
    }
    ONNXD_ASSIGN_OR_RETURN(const Tensor plain, codes->second.Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor floats, Converted(plain, DataType::kFloat));
    const int64_t filters = plain.shape()[0], count = floats.ElementCount();
    std::vector<float> zeros = {0.0f};
    if (conv.input(kWeightsZero) != kNoValue) {
      const auto zero = graph_.initializers.find(conv.inputs[kWeightsZero]);
      if (zero == graph_.initializers.end()) return std::optional<Tensor>();
      ONNXD_ASSIGN_OR_RETURN(const Tensor bytes, zero->second.Materialize());
      ONNXD_ASSIGN_OR_RETURN(const Tensor numbers, Converted(bytes, DataType::kFloat));
      const auto given = numbers.elements<float>();
      zeros.assign(given.begin(), given.end());
    }
    const auto lanes = static_cast<int64_t>(zeros.size());
    if (count == 0 || (lanes != 1 && lanes != filters)) return std::optional<Tensor>();
    for (int64_t i = 0; i < count; ++i) {
      const auto lane = static_cast<size_t>(lanes == 1 ? 0 : i / (count / filters));
      float& weight = floats.mutable_data<float>()[i];
      weight = (weight - zeros[lane]) * scaled.weight_scale;
    }
    return std::optional<Tensor>(std::move(floats));
  }

  Graph& graph_;
  const std::vector<Node> nodes_;
  GraphMatcher match_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "dynamic_quantized_convs"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                 [](const Node& node) { return node.Is("ConvInteger"); });
    return any ? Rewriter(graph).Run() : Result<bool>(false);
  }
};

}  // namespace

const GraphPass* DynamicQuantizedConvs() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
