#include "runtime/providers/cpu/onednn/passes/reduced_precision.h"

#include <map>

#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/onednn/passes/matmul_epilogue.h"
#include "runtime/providers/cpu/onednn/post_ops.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

constexpr size_t kX = 0, kWeights = 1, kSum = 3;

bool IsFloatTensor(const Graph& graph, ValueId id) {
  return id == kNoValue ||
         (graph.value(id).type.is_tensor() && graph.value(id).type.element == DataType::kFloat);
}

// An activation that oneDNN computes before it rounds.
bool HasPostOperation(const Node& node) {
  const auto activation = ActivationOf(node);
  dnnl::post_ops ops;
  return activation.ok() && onednn::AddActivation(*activation, ops);
}

bool TakesBfloat16(const Graph& graph, const Node& node) {
  return (node.Is("ConvChannelsLast", "onnxd") || node.Is("MatMulBiasActivation", "onnxd")) &&
         IsFloatTensor(graph, node.input(kX)) && IsFloatTensor(graph, node.input(kSum)) &&
         graph.IsInitializer(node.input(kWeights)) && HasPostOperation(node);
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) {
      if (node.Is("Cast") && ElementOf(node.inputs[0]) == DataType::kBfloat16) {
        narrow_[node.outputs[0]] = node.inputs[0];
      }
    }
  }

  Result<bool> Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    bool changed = false;
    for (Node& node : nodes) {
      if (!TakesBfloat16(graph_, node)) {
        graph_.nodes.push_back(std::move(node));
        continue;
      }
      changed = true;
      ONNXD_RETURN_IF_ERROR(Rewrite(std::move(node)));
    }
    return changed;
  }

 private:
  DataType ElementOf(ValueId id) const { return graph_.value(id).type.element; }

  Status Rewrite(Node node) {
    ONNXD_ASSIGN_OR_RETURN(node.inputs[kWeights], NarrowWeights(node.inputs[kWeights]));
    for (const size_t i : {kX, kSum}) {
      if (node.input(i) != kNoValue) node.inputs[i] = Narrow(node.inputs[i]);
    }
    const ValueId wide = node.outputs[0];
    const ValueId narrow = AddNarrow(wide);
    node.outputs = {narrow};
    graph_.nodes.push_back(std::move(node));
    AddCast(narrow, wide, DataType::kFloat);
    narrow_[wide] = narrow;
    return Status::Ok();
  }

  // The value in bfloat16: what it was made from, if that was bfloat16.
  ValueId Narrow(ValueId wide) {
    if (const auto found = narrow_.find(wide); found != narrow_.end()) return found->second;
    const ValueId narrow = AddNarrow(wide);
    AddCast(wide, narrow, DataType::kBfloat16);
    return narrow_[wide] = narrow;
  }

  ValueId AddNarrow(ValueId wide) {
    ValueType type = graph_.value(wide).type;
    type.element = DataType::kBfloat16;
    return graph_.AddUniqueValue(graph_.value(wide).name + "_bf16", std::move(type));
  }

  void AddCast(ValueId from, ValueId to, DataType type) {
    Node node;
    node.name = graph_.value(to).name;
    node.op_type = "Cast";
    node.since_version = 13;
    node.inputs = {from};
    node.outputs = {to};
    node.attributes.Set("to", static_cast<int64_t>(type));
    graph_.nodes.push_back(std::move(node));
  }

  Result<ValueId> NarrowWeights(ValueId id) {
    if (const auto found = narrow_.find(id); found != narrow_.end()) return found->second;
    ONNXD_ASSIGN_OR_RETURN(const Tensor wide, graph_.initializers.at(id).Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor narrow, Tensor::Create(DataType::kBfloat16, wide.shape()));
    ConvertElements(DataType::kFloat, wide.raw(), DataType::kBfloat16, narrow.mutable_raw(),
                    wide.ElementCount());
    return narrow_[id] = graph_.AddInitializer(graph_.value(id).name + "_bf16", std::move(narrow));
  }

  Graph& graph_;
  std::map<ValueId, ValueId> narrow_;  // values of floats and their bfloat16 twins
};

bool Split(Graph& graph) {
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (!node.Is("MatMulBiasActivation", "onnxd") || !TakesBfloat16(graph, node)) continue;
    node.op_type = "MatMulBfloat16x3";
    changed = true;
  }
  return changed;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "reduced_precision"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    if (context.precision == Precision::kFloat32) return false;
    const bool products = BareProductsAsFused(graph);
    ONNXD_ASSIGN_OR_RETURN(const bool changed, context.precision == Precision::kBfloat16
                                                   ? Rewriter(graph).Run()
                                                   : Result<bool>(Split(graph)));
    return products || changed;
  }
};

}  // namespace

const GraphPass* ReducedPrecision() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
