#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// The input of a mean over the last axis that keeps it; kNoValue otherwise.
ValueId MeanOverLast(const Graph& graph, const GraphMatcher& match, ValueId id) {
  // Of the one axis behind channels, as tf2onnx writes it.
  if (const Node* pool = match.Producer(id, "GlobalAveragePool")) {
    return RankOf(graph, pool->inputs[0]) == 3 ? pool->inputs[0] : kNoValue;
  }
  const Node* mean = match.Producer(id, "ReduceMean");
  if (mean == nullptr || mean->attributes.Int("keepdims", 1) == 0) return kNoValue;
  const auto rank = RankOf(graph, mean->inputs[0]);
  const auto axes = AxesOfReduction(graph, *mean);
  if (!axes || axes->size() != 1 || !rank) return kNoValue;
  return axes->front() == -1 || axes->front() == *rank - 1 ? mean->inputs[0] : kNoValue;
}

// x of x * x or x ^ 2.
ValueId SquareOf(const GraphMatcher& match, ValueId id) {
  if (const ValueId x = match.BesideScalar(id, "Pow", 2); x != kNoValue) return x;
  const Node* product = match.Producer(id, "Mul");
  return product != nullptr && product->inputs[0] == product->inputs[1] ? product->inputs[0]
                                                                        : kNoValue;
}

struct Deviation {
  ValueId x = kNoValue;  // what is squared
  float epsilon = 0;
};

// Sqrt(mean of x squared + epsilon).
Deviation DeviationOf(const Graph& graph, const GraphMatcher& match, ValueId id) {
  const Node* root = match.Producer(id, "Sqrt");
  if (root == nullptr) return {};
  const auto sum = match.BesideAnyScalar(root->inputs[0], "Add");
  if (!sum) return {};
  return {SquareOf(match, MeanOverLast(graph, match, sum->value)), sum->scalar};
}

// The deviation of 1 / deviation.
Deviation DeviationOfInverse(const Graph& graph, const GraphMatcher& match, ValueId id) {
  if (const Node* inverse = match.Producer(id, "Reciprocal")) {
    return DeviationOf(graph, match, inverse->inputs[0]);
  }
  const Node* quotient = match.Producer(id, "Div");
  const bool is_inverse = quotient != nullptr && ScalarConstant(graph, quotient->inputs[0]) == 1.0f;
  return is_inverse ? DeviationOf(graph, match, quotient->inputs[1]) : Deviation{};
}

// x / deviation, or x * (1 / deviation): x and its deviation when both speak of the same x.
Deviation Normalized(const Graph& graph, const GraphMatcher& match, ValueId id) {
  if (const Node* quotient = match.Producer(id, "Div")) {
    const Deviation found = DeviationOf(graph, match, quotient->inputs[1]);
    return found.x != kNoValue && found.x == quotient->inputs[0] ? found : Deviation{};
  }
  const Node* product = match.Producer(id, "Mul");
  if (product == nullptr) return {};
  for (const size_t side : {0, 1}) {
    const Deviation found = DeviationOfInverse(graph, match, product->inputs[1 - side]);
    if (found.x != kNoValue && found.x == product->inputs[side]) return found;
  }
  return {};
}

// x of x minus its mean over the last axis, and that mean.
struct Centered {
  ValueId x = kNoValue, mean = kNoValue;
};
Centered CenteredOf(const Graph& graph, const GraphMatcher& match, ValueId id) {
  const Node* difference = match.Producer(id, "Sub");
  if (difference == nullptr) return {};
  const ValueId x = difference->inputs[0], mean = difference->inputs[1];
  return MeanOverLast(graph, match, mean) == x ? Centered{x, mean} : Centered{};
}

// Whether the initializer is a row for the last axis of x, with axes of one element before it.
bool IsRow(const Graph& graph, ValueId id, ValueId x) {
  const auto found = graph.initializers.find(id);
  const auto rank = RankOf(graph, x);
  if (found == graph.initializers.end() || !rank || *rank == 0) return false;
  const Shape& shape = found->second.shape();
  const Dimension& last = graph.value(x).type.shape->back();
  return shape.rank() > 0 && shape.rank() <= *rank &&
         found->second.type() == graph.value(x).type.element && last.known() &&
         last.value == shape[shape.rank() - 1] && last.value == shape.ElementCount();
}

struct Found {
  ValueId x = kNoValue, scale = kNoValue, bias = kNoValue;
  float epsilon = 0;
  bool centered = false;  // LayerNormalization; otherwise SimplifiedLayerNormalization
};

// `node` as Normalized(x) * scale.
Found ScaledOf(const Graph& graph, const GraphMatcher& match, const Node& node) {
  if (!node.Is("Mul")) return {};
  const auto operands = match.BesideConstant(node);
  if (!operands) return {};
  const Deviation normalized = Normalized(graph, match, operands->value);
  if (normalized.x == kNoValue || !IsFloat(graph, normalized.x)) return {};
  Found found{normalized.x, operands->constant, kNoValue, normalized.epsilon, false};
  const Centered centered = CenteredOf(graph, match, normalized.x);
  if (centered.x != kNoValue) {
    found.x = centered.x;
    found.centered = true;
  }
  return IsRow(graph, found.scale, found.x) ? found : Found{};
}

// With the bias that follows, if there is one.
Found WithBias(const Graph& graph, const GraphMatcher& match, const Node& node) {
  if (!node.Is("Add")) return {};
  const auto operands = match.BesideConstant(node);
  if (!operands) return {};
  const Node* scaled = match.Producer(operands->value, "Mul");
  if (scaled == nullptr) return {};
  Found found = ScaledOf(graph, match, *scaled);
  if (found.x == kNoValue || !found.centered || !IsRow(graph, operands->constant, found.x)) {
    return {};
  }
  found.bias = operands->constant;
  return found;
}

// bias - mean * factor, or bias + -mean * factor.
struct Shift {
  ValueId mean = kNoValue, factor = kNoValue, bias = kNoValue;
};
std::optional<Shift> ShiftOf(const GraphMatcher& match, ValueId id, ValueId factor) {
  const auto times_factor = [&](ValueId product) {
    const Node* node = match.Producer(product, "Mul");
    return node == nullptr ? kNoValue : GraphMatcher::OtherOperand(*node, factor);
  };
  if (const Node* difference = match.Producer(id, "Sub")) {
    return Shift{times_factor(difference->inputs[1]), factor, difference->inputs[0]};
  }
  const Node* sum = match.Producer(id, "Add");
  if (sum == nullptr) return std::nullopt;
  const auto operands = match.BesideConstant(*sum);
  if (!operands) return std::nullopt;
  const Node* negated = match.Producer(times_factor(operands->value), "Neg");
  if (negated == nullptr) return std::nullopt;
  return Shift{negated->inputs[0], factor, operands->constant};
}

// x * factor + (bias - mean * factor) with factor = scale / deviation, as TensorFlow writes it.
Found ShiftedOf(const Graph& graph, const GraphMatcher& match, const Node& node) {
  if (!node.Is("Add")) return {};
  for (const size_t side : {0, 1}) {
    const Node* scaled = match.Producer(node.inputs[side], "Mul");
    if (scaled == nullptr) continue;
    for (const ValueId factor : scaled->inputs) {
      const Node* product = match.Producer(factor, "Mul");
      if (product == nullptr) continue;
      const auto operands = match.BesideConstant(*product);
      const auto shift = ShiftOf(match, node.inputs[1 - side], factor);
      if (!operands || !shift) continue;
      const Deviation deviation = DeviationOfInverse(graph, match, operands->value);
      const Centered centered = CenteredOf(graph, match, deviation.x);
      const ValueId x = GraphMatcher::OtherOperand(*scaled, factor);
      if (centered.x == kNoValue || centered.x != x || centered.mean != shift->mean) continue;
      if (!IsFloat(graph, x) || !IsRow(graph, operands->constant, x)) continue;
      if (!IsRow(graph, shift->bias, x)) continue;
      return {x, operands->constant, shift->bias, deviation.epsilon, true};
    }
  }
  return {};
}

// As the operators want it, of rank 1.
ValueId Row(Graph& graph, ValueId id) {
  const Initializer& row = graph.initializers.at(id);
  if (row.shape().rank() == 1) return id;
  const auto tensor = row.Materialize();
  if (!tensor.ok()) return kNoValue;
  const std::string hint = graph.value(id).name;
  return graph.AddInitializer(hint, tensor->Reshaped(Shape{row.shape().ElementCount()}));
}

bool Rewrite(Graph& graph, Node& node, const Found& found, int64_t opset) {
  const ValueId scale = Row(graph, found.scale);
  const ValueId bias = found.bias == kNoValue ? kNoValue : Row(graph, found.bias);
  if (scale == kNoValue || (bias == kNoValue) != (found.bias == kNoValue)) return false;
  node.op_type = found.centered ? "LayerNormalization" : "SimplifiedLayerNormalization";
  node.since_version = found.centered && opset >= 17 ? 17 : 1;
  node.inputs = {found.x, scale};
  if (bias != kNoValue) node.inputs.push_back(bias);
  node.attributes = {};
  node.attributes.Set("axis", int64_t{-1});
  node.attributes.Set("epsilon", found.epsilon);
  return true;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "layer_normalization"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  // Biased ones first: a scaled one that a bias follows is part of it.
  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (const auto rule : {WithBias, ShiftedOf, ScaledOf}) {
      for (Node& node : graph.nodes) {
        const Found found = rule(graph, match, node);
        if (found.x != kNoValue) changed |= Rewrite(graph, node, found, context.opset);
      }
    }
    return changed;
  }
};

}  // namespace

const GraphPass* LayerNormalizationFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
