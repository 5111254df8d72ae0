#include "runtime/graph/graph_match.h"
#include "runtime/graph/channel_affine.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// B[k, n] or, transposed, B[n, k], each column times its scale.
Result<Tensor> ScaledColumns(const Tensor& b, const std::vector<float>& scale, bool transposed) {
  ONNXD_ASSIGN_OR_RETURN(Tensor scaled, Tensor::Create(DataType::kFloat, b.shape()));
  const int64_t columns = b.shape()[1];
  for (int64_t i = 0; i < b.ElementCount(); ++i) {
    const int64_t channel = transposed ? i / columns : i % columns;
    scaled.mutable_data<float>()[i] = b.data<float>()[i] * scale[static_cast<size_t>(channel)];
  }
  return scaled;
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), index_(graph) {}

  Result<bool> Run() {
    bool changed = false;
    for (Node& node : graph_.nodes) {
      if (!node.Is("BatchNormalization")) continue;
      ONNXD_ASSIGN_OR_RETURN(const bool folded, TryFold(node));
      changed |= folded;
    }
    for (Node& node : added_) graph_.nodes.push_back(std::move(node));
    return changed;
  }

 private:
  // The node that produces it, where nobody else reads it.
  Node* ProducerForItAlone(ValueId id) {
    const int producer = index_.producer(id);
    if (producer < 0 || index_.use_count(id) != 1) return nullptr;
    return &graph_.nodes[static_cast<size_t>(producer)];
  }

  // The product whose columns are the channels that the node normalizes; null where it is none.
  Node* ProductOf(const Node& normalization) {
    const ValueId x = normalization.inputs[0];
    if (RankOf(graph_, x) != 2) return nullptr;
    Node* product = ProducerForItAlone(x);
    if (product != nullptr && (product->Is("Reshape") || product->Is("Flatten"))) {
      // Rows in another arrangement, where they are as long: looked at below.
      product = ProducerForItAlone(product->inputs[0]);
      if (product == nullptr || !product->Is("MatMul")) return nullptr;
    }
    if (product == nullptr) return nullptr;
    if (product->Is("MatMul")) return product;
    const bool is_plain = product->Is("Gemm") && product->attributes.Float("alpha", 1) == 1.0f &&
                          product->attributes.Float("beta", 1) == 1.0f;
    return is_plain ? product : nullptr;
  }

  Result<bool> TryFold(Node& normalization) {
    Node* const product = ProductOf(normalization);
    if (product == nullptr) return false;
    const Initializer* weights = FloatConstant(graph_, product->inputs[1]);
    if (weights == nullptr || weights->shape().rank() != 2) return false;
    const bool transposed = product->Is("Gemm") && product->attributes.Int("transB", 0) != 0;
    const int64_t channels = weights->shape()[transposed ? 0 : 1];
    const Dimension& width = graph_.value(normalization.inputs[0]).type.shape->at(1);
    if (!width.known() || width.value != channels) return false;
    ONNXD_ASSIGN_OR_RETURN(const auto affine, ChannelAffineOf(graph_, normalization, channels));
    if (!affine) return false;
    Tensor bias;
    if (product->input(2) != kNoValue) {
      const Initializer* constant = FloatConstant(graph_, product->input(2));
      if (constant == nullptr ||
          !(constant->shape() == Shape{channels} || constant->shape() == Shape{1, channels})) {
        return false;
      }
      ONNXD_ASSIGN_OR_RETURN(bias, constant->Materialize());
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor shift, Tensor::Create(DataType::kFloat, Shape{channels}));
    for (size_t c = 0; c < affine->shift.size(); ++c) {
      const float b = bias.defined() ? bias.data<float>()[c] : 0.0f;
      shift.mutable_data<float>()[c] = b * affine->scale[c] + affine->shift[c];
    }
    ONNXD_ASSIGN_OR_RETURN(const Tensor plain, weights->Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor scaled, ScaledColumns(plain, affine->scale, transposed));
    const std::string hint = graph_.value(product->inputs[1]).name;
    product->inputs[1] = graph_.AddInitializer(hint + "_folded", std::move(scaled));
    AddBias(*product, graph_.AddInitializer(hint + "_bias", std::move(shift)));
    normalization.op_type = "Identity";
    normalization.since_version = 13;
    normalization.attributes = {};
    normalization.inputs.resize(1);
    normalization.outputs.resize(1);
    return true;
  }

  void AddBias(Node& product, ValueId bias) {
    if (product.Is("Gemm")) {
      product.inputs.resize(3, kNoValue);
      product.inputs[2] = bias;
      return;
    }
    Node sum;
    sum.name = product.name;
    sum.op_type = "Add";
    sum.since_version = 13;
    sum.outputs = {product.outputs[0]};
    product.outputs[0] = graph_.AddUniqueValue(graph_.value(sum.outputs[0]).name + "_product");
    sum.inputs = {product.outputs[0], bias};
    added_.push_back(std::move(sum));
  }

  Graph& graph_;
  const GraphIndex index_;
  std::vector<Node> added_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "product_batch_normalization"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    return Rewriter(graph).Run();
  }
};

}  // namespace

const GraphPass* ProductBatchNormalizationFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
