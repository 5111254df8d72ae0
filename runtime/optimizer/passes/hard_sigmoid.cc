#include <algorithm>
#include <cmath>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// The values between 0 and `top` of x + offset, clipped to them.
struct Ramp {
  ValueId x = kNoValue;
  float offset = 0, top = 0;
};

// The operand that a scalar bounds from below by 0 (Max, Relu) or from above by a scalar (Min).
ValueId AboveZero(const GraphMatcher& match, ValueId id) {
  if (const Node* relu = match.Producer(id, "Relu")) return relu->inputs[0];
  const auto bounded = match.BesideAnyScalar(id, "Max");
  return bounded && bounded->scalar == 0 ? bounded->value : kNoValue;
}

// What is clipped to [0, top], and top.
GraphMatcher::Scaled Clipped(const Graph& graph, const GraphMatcher& match, ValueId id) {
  if (const Node* clip = match.Producer(id, "Clip")) {
    const auto bounds = ClipBounds(graph, *clip);
    if (!bounds || bounds->low != 0) return {};
    return {clip->inputs[0], bounds->high};
  }
  if (const auto below = match.BesideAnyScalar(id, "Min")) {
    return {AboveZero(match, below->value), below->scalar};
  }
  const ValueId inner = AboveZero(match, id);
  const auto below = match.BesideAnyScalar(inner, "Min");
  return below ? *below : GraphMatcher::Scaled{};
}

Ramp RampOf(const Graph& graph, const GraphMatcher& match, ValueId id) {
  const GraphMatcher::Scaled clipped = Clipped(graph, match, id);
  if (clipped.value == kNoValue || !(clipped.scalar > 0) || !std::isfinite(clipped.scalar)) {
    return {};
  }
  const auto sum = match.BesideAnyScalar(clipped.value, "Add");
  return sum ? Ramp{sum->value, sum->scalar, clipped.scalar} : Ramp{};
}

// The value that `id` is a multiple of, and by how much.
std::optional<GraphMatcher::Scaled> Multiple(const GraphMatcher& match, ValueId id) {
  if (const auto product = match.BesideAnyScalar(id, "Mul")) return product;
  const auto quotient = match.BesideAnyScalar(id, "Div");
  if (!quotient || quotient->scalar == 0) return std::nullopt;
  return GraphMatcher::Scaled{quotient->value, 1 / quotient->scalar};
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), match_(graph), nodes_(graph.nodes) {}

  bool Run() {
    bool changed = false;
    for (size_t i = 0; i < nodes_.size(); ++i) changed = TryRewrite(graph_.nodes[i], i) || changed;
    if (changed) {
      nodes_.insert(nodes_.end(), made_.begin(), made_.end());
      graph_.nodes = std::move(nodes_);
    }
    return changed;
  }

 private:
  bool TryRewrite(const Node& node, size_t position) {
    if ((!node.Is("Mul") && !node.Is("Div")) || node.since_version < 7) return false;
    const DataType type = graph_.value(node.outputs[0]).type.element;
    if (type != DataType::kFloat && type != DataType::kFloat16) return false;
    if (const auto multiple = Multiple(match_, node.outputs[0])) {
      if (const Ramp ramp = Unit(multiple->value, multiple->scalar, type); ramp.x != kNoValue) {
        nodes_[position] = HardSigmoid(ramp, multiple->scalar, node.name, node.outputs[0]);
        return true;
      }
      const Node* product = match_.Producer(multiple->value, "Mul");
      return product != nullptr && Gate(*product, multiple->scalar, node, position, type);
    }
    if (!node.Is("Mul")) return false;
    // One of the factors may be scaled instead.
    for (const size_t side : {0, 1}) {
      const auto scaled = Multiple(match_, node.inputs[side]);
      if (!scaled) continue;
      const Ramp ramp = Unit(node.inputs[1 - side], scaled->scalar, type);
      if (ramp.x == kNoValue) continue;
      Multiply(scaled->value, ramp, scaled->scalar, node, position);
      return true;
    }
    return false;
  }

  // The ramp that `id` is, if `scale` makes its top 1.
  Ramp Unit(ValueId id, float scale, DataType type) const {
    const Ramp ramp = RampOf(graph_, match_, id);
    const float tolerance = type == DataType::kFloat ? 1e-6f : 1e-3f;
    return std::abs(ramp.top * scale - 1) < tolerance ? ramp : Ramp{};
  }

  // `node` is scale * product: of a ramp and what it opens and shuts.
  bool Gate(const Node& product, float scale, const Node& node, size_t position, DataType type) {
    if (product.inputs.size() != 2) return false;
    for (const size_t side : {0, 1}) {
      const Ramp ramp = Unit(product.inputs[side], scale, type);
      if (ramp.x == kNoValue) continue;
      Multiply(product.inputs[1 - side], ramp, scale, node, position);
      return true;
    }
    return false;
  }

  // `node` becomes the product of `value` and a HardSigmoid.
  void Multiply(ValueId value, const Ramp& ramp, float scale, const Node& node, size_t position) {
    const ValueId gate = graph_.AddUniqueValue(node.name + "_gate");
    made_.push_back(HardSigmoid(ramp, scale, node.name + "_gate", gate));
    Node& product = nodes_[position];
    product.op_type = "Mul";
    product.inputs = {value, gate};
  }

  static Node HardSigmoid(const Ramp& ramp, float scale, std::string name, ValueId output) {
    Node node;
    node.name = std::move(name);
    node.op_type = "HardSigmoid";
    node.since_version = 6;
    node.attributes.Set("alpha", scale);
    node.attributes.Set("beta", scale * ramp.offset);
    node.inputs = {ramp.x};
    node.outputs = {output};
    return node;
  }

  Graph& graph_;
  GraphMatcher match_;
  std::vector<Node> nodes_, made_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "hard_sigmoid"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    // Before nodes are copied, of which some have a list as long as the model's file.
    const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
      return node.Is("Clip") || node.Is("Min");
    });
    return any && Rewriter(graph).Run();
  }
};

}  // namespace

const GraphPass* HardSigmoidFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
