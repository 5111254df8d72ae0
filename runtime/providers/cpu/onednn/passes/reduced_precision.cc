#include "runtime/providers/cpu/onednn/passes/reduced_precision.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string_view>

#include "runtime/graph/graph_match.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/onednn/passes/matmul_epilogue.h"
#include "runtime/providers/cpu/onednn/post_ops.h"

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

// The kernel takes bfloat16 where its products are faster so; masks stay float.
bool AttendsInBfloat16(const Graph& graph, const Node& node) {
  return node.Is("FusedAttention", "onnxd") && math::CurrentSimd().fast_bfloat16 &&
         IsFloatTensor(graph, node.input(0)) && IsFloatTensor(graph, node.input(3)) &&
         IsFloatTensor(graph, node.input(4));
}

// Whether the node only moves, or chooses among, the elements of its first input.
bool Moves(const Node& node) {
  if (node.Is("MaxPoolChannelsLast", "onnxd")) return true;
  constexpr std::string_view kMovements[] = {"Flatten", "Gather",  "Identity",  "Reshape",  "Slice",
                                             "Split",   "Squeeze", "Transpose", "Unsqueeze"};
  return node.domain.empty() && std::find(std::begin(kMovements), std::end(kMovements),
                                          node.op_type) != std::end(kMovements);
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), read_(ReadInBfloat16(graph)) {
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
      if (TakesBfloat16(graph_, node)) {
        ONNXD_ASSIGN_OR_RETURN(node.inputs[kWeights], NarrowWeights(node.inputs[kWeights]));
        if (EndsInFloat(node)) {
          node.inputs[kX] = Narrow(node.inputs[kX]);
          node.attributes.Set("output_dtype", static_cast<int64_t>(DataType::kFloat));
          graph_.nodes.push_back(std::move(node));
        } else {
          Rewrite(std::move(node), {kX, kSum});
        }
        changed = true;
      } else if (AttendsInBfloat16(graph_, node)) {
        Rewrite(std::move(node), {0, 1, 2});
        changed = true;
      } else if (Moves(node) && narrow_.contains(node.inputs[0])) {
        Rewrite(std::move(node), {0});
        changed = true;
      } else {
        if (node.Is("Shape") && narrow_.contains(node.inputs[0])) {
          node.inputs[0] = narrow_[node.inputs[0]];  // which spares a Cast that nobody reads
        }
        graph_.nodes.push_back(std::move(node));
      }
    }
    return changed;
  }

 private:
  // What some node will want in bfloat16.
  static std::set<ValueId> ReadInBfloat16(const Graph& graph) {
    std::set<ValueId> read;
    for (const Node& node : graph.nodes) {
      if (TakesBfloat16(graph, node) || Moves(node)) read.insert(node.inputs[0]);
      if (node.Is("ConvChannelsLast", "onnxd")) read.insert(node.input(kSum));
      if (!AttendsInBfloat16(graph, node)) continue;
      read.insert(node.inputs.begin(), node.inputs.begin() + 3);
    }
    return read;
  }

  // A product that only floats are wanted of: it gives them, and adds them, as its sums are.
  bool EndsInFloat(const Node& node) const {
    return node.Is("MatMulBiasActivation", "onnxd") && math::CurrentSimd().fast_bfloat16 &&
           !read_.contains(node.outputs[0]);
  }

  DataType ElementOf(ValueId id) const { return graph_.value(id).type.element; }

  // These inputs and all outputs in bfloat16.
  void Rewrite(Node node, std::initializer_list<size_t> inputs) {
    for (const size_t i : inputs) {
      if (node.input(i) != kNoValue) node.inputs[i] = Narrow(node.inputs[i]);
    }
    const std::vector<ValueId> wide = node.outputs;
    for (ValueId& output : node.outputs) {
      if (output != kNoValue) output = AddNarrow(output);
    }
    const std::vector<ValueId> narrow = node.outputs;
    graph_.nodes.push_back(std::move(node));
    for (size_t i = 0; i < wide.size(); ++i) {
      if (wide[i] == kNoValue) continue;
      AddCast(narrow[i], wide[i], DataType::kFloat);
      narrow_[wide[i]] = narrow[i];
    }
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
    math::CurrentSimd().narrow(wide.data<float>(), static_cast<uint16_t*>(narrow.mutable_raw()),
                               nullptr, wide.ElementCount());
    return narrow_[id] = graph_.AddInitializer(graph_.value(id).name + "_bf16", std::move(narrow));
  }

  Graph& graph_;
  const std::set<ValueId> read_;
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
