#include "runtime/providers/cpu/onednn/passes/matmul_epilogue.h"

#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/activation.h"

namespace onnxd {
namespace {

constexpr int64_t kLeastElements = 1 << 14;  // of the matrix, as the kernel wants them

struct Matrix {
  int64_t columns;
  bool transposed;
};

// A row of floats that is added to every row of `out`.
bool IsRow(const Graph& graph, ValueId id, ValueId out, int64_t columns) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || found->second.type() != DataType::kFloat) return false;
  const Shape& shape = found->second.shape();
  return shape.rank() >= 1 && shape[shape.rank() - 1] == columns &&
         shape.ElementCount() == columns && shape.rank() <= RankOf(graph, out).value_or(0);
}

// The constant right side of a product that computes A * B (+ row).
std::optional<Matrix> MatrixOf(const Graph& graph, const Node& node) {
  const bool gemm = node.Is("Gemm");
  if ((!gemm && !node.Is("MatMul")) || !IsFloat(graph, node.inputs[0])) return std::nullopt;
  const auto b = graph.initializers.find(node.inputs[1]);
  if (b == graph.initializers.end() || b->second.shape().rank() != 2 ||
      b->second.shape().ElementCount() < kLeastElements) {
    return std::nullopt;
  }
  const Attributes& a = node.attributes;
  const bool transposed = gemm && a.Int("transB", 0) != 0;
  const int64_t columns = b->second.shape()[transposed ? 0 : 1];
  if (gemm) {
    const bool plain =
        a.Int("transA", 0) == 0 && a.Float("alpha", 1) == 1 && a.Float("beta", 1) == 1;
    const ValueId c = node.input(2);
    if (!plain || (c != kNoValue && !IsRow(graph, c, node.outputs[0], columns))) {
      return std::nullopt;
    }
  }
  return Matrix{columns, transposed};
}

// The product as MatMulBiasActivation.
Node AsFused(Node product, const Matrix& matrix) {
  product.op_type = "MatMulBiasActivation";
  product.domain = "onnxd";
  product.since_version = 1;
  for (const char* name : {"transA", "alpha", "beta"}) product.attributes.Erase(name);
  if (matrix.transposed) product.attributes.Set("transB", int64_t{1});
  while (product.inputs.back() == kNoValue) product.inputs.pop_back();
  return product;
}

class Fusion {
 public:
  // `taken`: positions that other products stand for.
  Fusion(Graph& graph, size_t product, const Matrix& matrix, const GraphIndex& index,
         const std::vector<bool>& taken)
      : graph_(graph), index_(index), taken_(taken), columns_(matrix.columns), last_(product) {
    fused_ = AsFused(graph.nodes[product], matrix);
    fused_.inputs.resize(4, kNoValue);
    positions_.push_back(product);
  }

  // Takes in consumers as long as they fit. False when there was none.
  bool Grow() {
    while (Step()) {
    }
    return positions_.size() > 1;
  }

  // The fused node, in the last consumer's place, and the positions that it stands for.
  Node Result() {
    fused_.outputs = {Out()};
    while (fused_.inputs.back() == kNoValue) fused_.inputs.pop_back();
    return fused_;
  }
  const std::vector<size_t>& positions() const { return positions_; }

 private:
  ValueId Out() const { return graph_.nodes[last_].outputs[0]; }

  bool Step() {
    const ValueId out = Out();
    if (activated_ || index_.use_count(out) != 1 || index_.consumers(out).empty()) return false;
    const auto next = static_cast<size_t>(index_.consumers(out)[0]);
    const Node& consumer = graph_.nodes[next];
    if (taken_[next] || consumer.outputs.size() != 1 || !consumer.captures.empty()) return false;
    if (!(consumer.Is("Add") ? TakeSum(consumer, out) : TakeActivation(consumer))) return false;
    last_ = next;
    positions_.push_back(next);
    return true;
  }

  bool TakeSum(const Node& sum, ValueId out) {
    const ValueId other = GraphMatcher::OtherOperand(sum, out);
    if (sum.since_version < 7 || other == kNoValue) return false;
    ValueId& bias = fused_.inputs[2];
    ValueId& residual = fused_.inputs[3];
    if (bias == kNoValue && residual == kNoValue && IsRow(graph_, other, out, columns_)) {
      bias = other;
      return true;
    }
    if (residual != kNoValue || graph_.IsInitializer(other) ||
        !SameKnownShape(graph_, out, other)) {
      return false;
    }
    residual = other;
    return true;
  }

  bool TakeActivation(const Node& node) {
    const std::string name = ActivationName(node);
    if (name.empty()) return false;
    fused_.attributes.Set("activation", name);
    activated_ = true;
    return true;
  }

  Graph& graph_;
  const GraphIndex& index_;
  const std::vector<bool>& taken_;
  int64_t columns_;
  size_t last_;
  bool activated_ = false;
  Node fused_;
  std::vector<size_t> positions_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "matmul_epilogue"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphIndex index(graph);
    std::vector<bool> dropped(graph.nodes.size(), false);
    bool changed = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (dropped[i]) continue;
      const auto matrix = MatrixOf(graph, graph.nodes[i]);
      if (!matrix) continue;
      Fusion fusion(graph, i, *matrix, index, dropped);
      if (!fusion.Grow()) continue;
      Node fused = fusion.Result();
      for (const size_t position : fusion.positions()) dropped[position] = true;
      const size_t last = fusion.positions().back();
      graph.nodes[last] = std::move(fused);
      dropped[last] = false;
      changed = true;
    }
    size_t position = 0;
    std::erase_if(graph.nodes, [&](const Node&) { return dropped[position++]; });
    return changed;
  }
};

}  // namespace

bool BareProductsAsFused(Graph& graph) {
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (const auto matrix = MatrixOf(graph, node)) {
      node = AsFused(std::move(node), *matrix);
      changed = true;
    }
  }
  return changed;
}

std::optional<Node> ProductAsFused(const Graph& graph, const Node& node) {
  if (node.Is("MatMulBiasActivation", "onnxd")) {
    const auto matrix = graph.initializers.find(node.inputs[1]);
    const bool is_float = matrix != graph.initializers.end() &&
                          matrix->second.type() == DataType::kFloat &&
                          IsFloat(graph, node.inputs[0]) && IsFloat(graph, node.outputs[0]);
    return is_float ? std::optional<Node>(node) : std::nullopt;
  }
  const auto matrix = MatrixOf(graph, node);
  return matrix ? std::optional<Node>(AsFused(node, *matrix)) : std::nullopt;
}

const GraphPass* MatMulEpilogue() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
