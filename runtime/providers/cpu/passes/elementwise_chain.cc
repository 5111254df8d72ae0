#include "runtime/providers/cpu/passes/elementwise_chain.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

constexpr size_t kMostNodes = 32, kMostInputs = 16;

// One operation of a chain, by the name that the kernel knows.
struct Operation {
  std::string name;
  size_t operands;  // of the node's first inputs
  float low = 0, high = 0;
};

std::optional<Operation> ClipOperation(const Graph& graph, const Node& node) {
  Operation clip{"Clip", 1, std::numeric_limits<float>::lowest(),
                 std::numeric_limits<float>::max()};
  if (node.since_version < 11) {
    clip.low = node.attributes.Float("min", clip.low);
    clip.high = node.attributes.Float("max", clip.high);
    return clip;
  }
  for (const size_t i : {1, 2}) {
    if (node.input(i) == kNoValue) continue;
    const auto bound = ScalarConstant(graph, node.input(i));
    if (!bound) return std::nullopt;
    (i == 1 ? clip.low : clip.high) = *bound;
  }
  return clip;
}

std::optional<Operation> OperationOf(const Graph& graph, const Node& node) {
  static const std::set<std::string_view> unary = {"Relu", "Sigmoid", "Tanh", "Exp",      "Erf",
                                                   "Sqrt", "Abs",     "Neg",  "HardSwish"};
  static const std::set<std::string_view> binary = {"Add", "Sub", "Mul", "Div"};
  if (node.outputs.size() != 1 || !node.captures.empty()) return std::nullopt;
  if (node.Is("Gelu", "com.microsoft")) return Operation{"Gelu", 1};
  if (node.Is("FastGelu", "com.microsoft") && node.input(1) == kNoValue) {
    return Operation{"FastGelu", 1};
  }
  if (!node.domain.empty()) return std::nullopt;
  if (node.Is("Gelu")) {
    const bool by_tanh = node.attributes.String("approximate", "none") == "tanh";
    return Operation{by_tanh ? "FastGelu" : "Gelu", 1};
  }
  if (node.Is("Clip")) return ClipOperation(graph, node);
  if (node.Is("Pow")) {
    const auto exponent = ScalarConstant(graph, node.inputs[1]);
    if (exponent != 2.0f || node.since_version < 7) return std::nullopt;
    return Operation{"Square", 1};
  }
  if (unary.contains(node.op_type)) return Operation{node.op_type, 1};
  if (binary.contains(node.op_type) && node.since_version >= 7) return Operation{node.op_type, 2};
  return std::nullopt;
}

// One element, or the last axes of `out`, the others of extent 1 or missing.
bool Repeats(const Graph& graph, ValueId id, ValueId out) {
  const auto &small = graph.value(id).type.shape, &large = graph.value(out).type.shape;
  if (!small || !large || small->size() > large->size()) return false;
  const auto is_one = [](const Dimension& d) { return d.known() && d.value == 1; };
  size_t axis = 0;
  while (axis < small->size() && is_one((*small)[axis])) ++axis;
  for (; axis < small->size(); ++axis) {
    const Dimension& own = (*small)[axis];
    const Dimension& whole = (*large)[axis + large->size() - small->size()];
    if (!(own == whole) || (!own.known() && own.symbol.empty())) return false;
  }
  return true;
}

class Chain {
 public:
  Chain(const Graph& graph, const PassContext& context, const GraphIndex& index, size_t root)
      : graph_(graph),
        context_(context),
        index_(index),
        root_(graph.nodes[root].outputs[0]),
        members_{root} {}

  // Takes in producers while there are any that only the chain reads.
  void Grow(const std::vector<bool>& taken) {
    for (bool grown = true; grown && members_.size() < kMostNodes;) {
      grown = false;
      for (const size_t member : std::set<size_t>(members_)) {
        const Node& node = graph_.nodes[member];
        const size_t operands = OperationOf(graph_, node)->operands;
        for (size_t i = 0; i < operands; ++i) grown = Take(node.inputs[i], taken) || grown;
      }
    }
  }

  // The chain as one node; nullopt when it is none or has too many operands.
  std::optional<Node> Fused() const {
    if (members_.size() < 2) return std::nullopt;
    std::vector<ValueId> inputs;
    std::vector<std::string> names;
    std::vector<int64_t> operands;
    std::vector<float> bounds;
    const auto input_of = [&](ValueId id) {
      const auto found = std::find(inputs.begin(), inputs.end(), id);
      if (found == inputs.end()) inputs.push_back(id);
      return static_cast<int64_t>(std::find(inputs.begin(), inputs.end(), id) - inputs.begin());
    };
    std::vector<ValueId> results;
    // Operands that are results count from -1 downwards: how many inputs there are shows later.
    for (const size_t member : members_) {
      const Node& node = graph_.nodes[member];
      const Operation operation = *OperationOf(graph_, node);
      names.push_back(operation.name);
      bounds.insert(bounds.end(), {operation.low, operation.high});
      for (size_t i = 0; i < 2; ++i) {
        const ValueId id = node.inputs[i < operation.operands ? i : 0];
        const auto result = std::find(results.begin(), results.end(), id);
        operands.push_back(result != results.end() ? -1 - (result - results.begin())
                                                   : input_of(id));
      }
      results.push_back(node.outputs[0]);
    }
    if (inputs.size() > kMostInputs) return std::nullopt;
    const auto count = static_cast<int64_t>(inputs.size());
    for (int64_t& operand : operands) operand = operand < 0 ? count - 1 - operand : operand;
    Node fused;
    fused.name = graph_.nodes[*members_.rbegin()].name;
    fused.op_type = "ElementwiseChain";
    fused.domain = "onnxd";
    fused.since_version = 1;
    fused.inputs = inputs;
    fused.outputs = {root_};
    fused.attributes.Set("operations", names);
    fused.attributes.Set("operands", operands);
    fused.attributes.Set("bounds", bounds);
    return fused;
  }

  // Whether all operands of `node` are of the root's shape, or repeat along it.
  bool Fits(const Node& node) const {
    const auto operation = OperationOf(graph_, node);
    if (!operation || (context_.owns && !context_.owns(node)) ||
        !IsFloat(graph_, node.outputs[0]) || !SameKnownShape(graph_, node.outputs[0], root_)) {
      return false;
    }
    for (size_t i = 0; i < operation->operands; ++i) {
      if (!IsFloat(graph_, node.inputs[i]) || !Repeats(graph_, node.inputs[i], root_)) return false;
    }
    return true;
  }

  const std::set<size_t>& members() const { return members_; }

 private:
  bool Take(ValueId id, const std::vector<bool>& taken) {
    const int producer = index_.producer(id);
    if (producer < 0 || members_.size() >= kMostNodes) return false;
    const auto position = static_cast<size_t>(producer);
    if (taken[position] || members_.contains(position) || !Fits(graph_.nodes[position])) {
      return false;
    }
    const std::set<int> users(index_.consumers(id).begin(), index_.consumers(id).end());
    int inside = 0;  // graph outputs and captures count as uses, too
    for (const int user : users) {
      if (!members_.contains(static_cast<size_t>(user))) return false;
      const auto& inputs = graph_.nodes[static_cast<size_t>(user)].inputs;
      inside += static_cast<int>(std::count(inputs.begin(), inputs.end(), id));
    }
    if (inside != index_.use_count(id)) return false;
    members_.insert(position);
    return true;
  }

  const Graph& graph_;
  const PassContext& context_;
  const GraphIndex& index_;
  ValueId root_;
  std::set<size_t> members_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "elementwise_chain"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    const GraphIndex index(graph);
    std::vector<bool> taken(graph.nodes.size(), false);
    std::vector<std::pair<size_t, Node>> fused;
    for (size_t i = graph.nodes.size(); i-- > 0;) {
      if (taken[i] || !OperationOf(graph, graph.nodes[i])) continue;
      Chain chain(graph, context, index, i);
      if (!chain.Fits(graph.nodes[i])) continue;
      chain.Grow(taken);
      auto node = chain.Fused();
      if (!node) continue;
      for (const size_t member : chain.members()) taken[member] = true;
      fused.emplace_back(i, std::move(*node));
    }
    for (auto& [position, node] : fused) graph.nodes[position] = std::move(node);
    return !fused.empty();
  }
};

}  // namespace

const GraphPass* ElementwiseChains() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
