#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// The input of a ReduceMean over the last axis that keeps it; kNoValue otherwise.
ValueId MeanOverLast(const Graph& graph, const GraphMatcher& match, ValueId id) {
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

// x / deviation, or x * (1 / deviation): x and its deviation when both speak of the same x.
Deviation Normalized(const Graph& graph, const GraphMatcher& match, ValueId id) {
  if (const Node* quotient = match.Producer(id, "Div")) {
    const Deviation found = DeviationOf(graph, match, quotient->inputs[1]);
    return found.x != kNoValue && found.x == quotient->inputs[0] ? found : Deviation{};
  }
  const Node* product = match.Producer(id, "Mul");
  if (product == nullptr) return {};
  for (const size_t side : {0, 1}) {
    ValueId deviation = kNoValue;
    if (const Node* inverse = match.Producer(product->inputs[1 - side], "Reciprocal")) {
      deviation = inverse->inputs[0];
    } else if (const Node* quotient = match.Producer(product->inputs[1 - side], "Div")) {
      if (ScalarConstant(graph, quotient->inputs[0]) == 1.0f) deviation = quotient->inputs[1];
    }
    const Deviation found = DeviationOf(graph, match, deviation);
    if (found.x != kNoValue && found.x == product->inputs[side]) return found;
  }
  return {};
}

// Whether the initializer is a row for the last axis of x.
bool IsRow(const Graph& graph, ValueId id, ValueId x) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || found->second.shape().rank() != 1) return false;
  const Dimension& last = graph.value(x).type.shape->back();
  return found->second.type() == graph.value(x).type.element && last.known() &&
         last.value == found->second.shape()[0];
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
  if (const Node* centered = match.Producer(normalized.x, "Sub")) {
    if (MeanOverLast(graph, match, centered->inputs[1]) == centered->inputs[0]) {
      found.x = centered->inputs[0];
      found.centered = true;
    }
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

void Rewrite(Node& node, const Found& found, int64_t opset) {
  node.op_type = found.centered ? "LayerNormalization" : "SimplifiedLayerNormalization";
  node.since_version = found.centered && opset >= 17 ? 17 : 1;
  node.inputs = {found.x, found.scale};
  if (found.bias != kNoValue) node.inputs.push_back(found.bias);
  node.attributes = {};
  node.attributes.Set("axis", int64_t{-1});
  node.attributes.Set("epsilon", found.epsilon);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "layer_normalization"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  // Biased ones first: a scaled one that a bias follows is part of it.
  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (const auto rule : {WithBias, ScaledOf}) {
      for (Node& node : graph.nodes) {
        const Found found = rule(graph, match, node);
        if (found.x == kNoValue) continue;
        Rewrite(node, found, context.opset);
        changed = true;
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
