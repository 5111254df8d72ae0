#include <algorithm>
#include <cmath>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// An initializer of floats with one element, or one per column.
std::optional<Tensor> RowConstant(const Graph& graph, ValueId id, int64_t columns, int max_rank) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || found->second.type() != DataType::kFloat) {
    return std::nullopt;
  }
  const Shape& shape = found->second.shape();
  const int64_t count = shape.ElementCount();
  const bool row = count == columns && shape.rank() >= 1 && shape[shape.rank() - 1] == columns;
  if ((!row && count != 1) || shape.rank() > max_rank) return std::nullopt;
  auto tensor = found->second.Materialize();
  return tensor.ok() ? std::optional(std::move(*tensor)) : std::nullopt;
}

// Row by row: out[i, j] = rows[i, j] * scale[j]; a row of one number is stretched first.
std::optional<Tensor> Scaled(const Tensor& rows, const Tensor& scale, int64_t columns) {
  const bool one_value = rows.ElementCount() == 1, one_factor = scale.ElementCount() == 1;
  auto out = Tensor::Create(DataType::kFloat, one_value ? Shape{columns} : rows.shape());
  if (!out.ok()) return std::nullopt;
  const float* from = rows.data<float>();
  const float* factors = scale.data<float>();
  float* to = out->mutable_data<float>();
  const int64_t lines = columns == 0 ? 0 : out->ElementCount() / columns;
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t j = 0; j < columns; ++j) {
      *to++ = (one_value ? from[0] : from[line * columns + j]) * factors[one_factor ? 0 : j];
    }
  }
  return std::move(*out);
}

std::optional<Tensor> Inverse(const Tensor& row) {
  auto out = Tensor::Create(DataType::kFloat, row.shape());
  if (!out.ok()) return std::nullopt;
  for (int64_t i = 0; i < row.ElementCount(); ++i) {
    out->mutable_data<float>()[i] = 1.0f / row.data<float>()[i];
  }
  return std::move(*out);
}

// Zero times infinity is not what x / 0 is.
bool IsFinite(const Tensor& row) {
  return std::ranges::all_of(row.elements<float>(), [](float x) { return std::isfinite(x); });
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "matmul_scale"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) changed = TryMultiply(graph, match, node) || changed;
    return changed;
  }

 private:
  // (A B + bias) * scale = A (B * scale) + bias * scale. `node` becomes Identity.
  static bool TryMultiply(Graph& graph, const GraphMatcher& match, Node& node) {
    const bool quotient = node.Is("Div");
    if ((!node.Is("Mul") && !quotient) || node.since_version < 7) return false;
    const auto operands = match.BesideConstant(node);
    if (!operands || (quotient && operands->constant != node.inputs[1])) return false;
    const auto rank = RankOf(graph, operands->value);
    if (!rank || match.index().use_count(operands->value) != 1) return false;
    ValueId product_output = operands->value;
    std::optional<GraphMatcher::Operands> biased;
    if (const Node* sum = match.Producer(operands->value, "Add")) {
      biased = match.BesideConstant(*sum);
      if (!biased || match.index().use_count(biased->value) != 1) return false;
      product_output = biased->value;
    }
    const Node* product = match.Producer(product_output, "MatMul");
    if (product == nullptr || graph.IsInitializer(product->inputs[0])) return false;
    const auto weights = graph.initializers.find(product->inputs[1]);
    if (weights == graph.initializers.end() || weights->second.type() != DataType::kFloat ||
        weights->second.shape().rank() != 2) {
      return false;
    }
    const int64_t columns = weights->second.shape()[1];
    auto scale = RowConstant(graph, operands->constant, columns, *rank);
    if (scale && quotient) scale = Inverse(*scale);
    if (!scale || !IsFinite(*scale)) return false;
    std::optional<Tensor> bias;
    if (biased) {
      bias = RowConstant(graph, biased->constant, columns, *rank);
      if (bias) bias = Scaled(*bias, *scale, columns);
      if (!bias) return false;
    }
    const auto matrix = weights->second.Materialize();
    auto scaled = matrix.ok() ? Scaled(*matrix, *scale, columns) : std::nullopt;
    if (!scaled) return false;
    Replace(graph, match, product_output, 1, std::move(*scaled));
    if (biased) {
      const Node& sum = graph.nodes[Position(match, operands->value)];
      const size_t side = sum.inputs[0] == biased->constant ? 0 : 1;
      Replace(graph, match, operands->value, side, std::move(*bias));
    }
    node.op_type = "Identity";
    node.attributes = {};
    node.inputs = {operands->value};
    return true;
  }

  static size_t Position(const GraphMatcher& match, ValueId output) {
    return static_cast<size_t>(match.index().producer(output));
  }

  // Gives the node that produces `output` a constant; the old one goes at once where nobody else
  // reads it, so that weights are never held twice.
  static void Replace(Graph& graph, const GraphMatcher& match, ValueId output, size_t operand,
                      Tensor tensor) {
    ValueId& input = graph.nodes[Position(match, output)].inputs[operand];
    const ValueId old = input;
    input = graph.AddInitializer(graph.value(old).name + "_scaled", std::move(tensor));
    if (match.index().use_count(old) == 1) graph.initializers.erase(old);
  }
};

}  // namespace

const GraphPass* MatMulScaleFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
