#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

constexpr float kSqrtHalf = 0.70710678f;       // 1 / sqrt(2)
constexpr float kSqrtTwoOverPi = 0.79788456f;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

// x of Erf(x / sqrt(2)).
ValueId ErfArgument(const GraphMatcher& match, ValueId id) {
  const Node* erf = match.Producer(id, "Erf");
  if (erf == nullptr) return kNoValue;
  const ValueId divided = match.BesideScalar(erf->inputs[0], "Div", 1 / kSqrtHalf);
  return divided != kNoValue ? divided : match.BesideScalar(erf->inputs[0], "Mul", kSqrtHalf);
}

bool IsCube(const GraphMatcher& match, ValueId id, ValueId x) {
  if (match.BesideScalar(id, "Pow", 3) == x) return true;
  const Node* product = match.Producer(id, "Mul");
  if (product == nullptr) return false;
  const Node* square = match.Producer(GraphMatcher::OtherOperand(*product, x), "Mul");
  return square != nullptr && square->inputs[0] == x && square->inputs[1] == x;
}

// x of Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)).
ValueId TanhArgument(const GraphMatcher& match, ValueId id) {
  const Node* tanh = match.Producer(id, "Tanh");
  if (tanh == nullptr) return kNoValue;
  const Node* sum =
      match.Producer(match.BesideScalar(tanh->inputs[0], "Mul", kSqrtTwoOverPi), "Add");
  if (sum == nullptr) return kNoValue;
  for (const size_t side : {0, 1}) {
    const ValueId x = sum->inputs[side];
    if (IsCube(match, match.BesideScalar(sum->inputs[1 - side], "Mul", kCubic), x)) return x;
  }
  return kNoValue;
}

struct Found {
  ValueId x = kNoValue;
  bool tanh = false;
};

// x of 1 + f(x).
Found OnePlus(const GraphMatcher& match, ValueId id) {
  const ValueId inner = match.BesideScalar(id, "Add", 1);
  const ValueId erf = ErfArgument(match, inner);
  if (erf != kNoValue) return {erf, false};
  return {TanhArgument(match, inner), true};
}

// `node` as x * (1 + f(x)), halved on either side; `halved` tells whether it is already.
Found Product(const GraphMatcher& match, const Node& node, bool halved) {
  for (const size_t side : {0, 1}) {
    const ValueId left = node.inputs[side], right = node.inputs[1 - side];
    if (halved) {
      const Found found = OnePlus(match, right);
      if (found.x != kNoValue && found.x == left) return found;
      continue;
    }
    const Found half_right = OnePlus(match, match.BesideScalar(right, "Mul", 0.5f));
    if (half_right.x != kNoValue && half_right.x == left) return half_right;
    const Found half_left = OnePlus(match, right);
    if (half_left.x != kNoValue && match.BesideScalar(left, "Mul", 0.5f) == half_left.x) {
      return half_left;
    }
  }
  return {};
}

Found GeluOf(const GraphMatcher& match, const Node& node) {
  if (!node.Is("Mul") || node.inputs.size() != 2) return {};
  const Node* inner = match.Producer(match.BesideScalar(node.outputs[0], "Mul", 0.5f), "Mul");
  if (inner != nullptr) {
    if (const Found found = Product(match, *inner, true); found.x != kNoValue) return found;
  }
  return Product(match, node, false);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "gelu"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      const Found found = GeluOf(match, node);
      if (found.x == kNoValue || !IsFloat(graph, found.x)) continue;
      node.op_type = found.tanh ? "FastGelu" : "Gelu";
      node.domain = "com.microsoft";
      node.since_version = 1;
      node.inputs = {found.x};
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* GeluFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
