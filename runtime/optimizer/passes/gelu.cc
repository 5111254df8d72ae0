#include <cmath>

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

// factor * x^power
struct Monomial {
  float factor = 1;
  int power = 0;
};

// Multiplies `product` by the value `id`, which numbers and powers of x make in any order; false
// where it has other factors.
bool MultiplyBy(const GraphMatcher& match, ValueId id, ValueId x, int depth, Monomial& product) {
  if (id == x) return ++product.power, true;
  for (const int power : {2, 3}) {
    if (match.BesideScalar(id, "Pow", static_cast<float>(power)) != x) continue;
    product.power += power;
    return true;
  }
  if (depth == 0) return false;
  if (const auto scaled = match.BesideAnyScalar(id, "Mul")) {
    product.factor *= scaled->scalar;
    return MultiplyBy(match, scaled->value, x, depth - 1, product);
  }
  const Node* both = match.Producer(id, "Mul");
  return both != nullptr && MultiplyBy(match, both->inputs[0], x, depth - 1, product) &&
         MultiplyBy(match, both->inputs[1], x, depth - 1, product);
}

bool IsCubicTerm(const GraphMatcher& match, ValueId id, ValueId x) {
  constexpr int kMostProducts = 3;  // of 0.044715, x, x and x
  Monomial product;
  return MultiplyBy(match, id, x, kMostProducts, product) && product.power == 3 &&
         std::abs(product.factor / kCubic - 1) < 1e-3f;
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
    if (IsCubicTerm(match, sum->inputs[1 - side], x)) return x;
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
      if (found.x == kNoValue) continue;
      const DataType type = graph.value(found.x).type.element;
      if (!IsFloatingPoint(type) || type == DataType::kDouble) continue;
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
