#include "runtime/providers/cpu/onednn/passes/group_normalization.h"

#include <algorithm>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

const std::optional<SymbolicShape>& ShapeOf(const Graph& graph, ValueId id) {
  return graph.value(id).type.shape;
}

// Whether an initializer of floats holds nothing else.
bool IsFilledWith(const Graph& graph, ValueId id, float expected) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || found->second.type() != DataType::kFloat) return false;
  const auto tensor = found->second.Materialize();
  if (!tensor.ok()) return false;
  const auto elements = tensor->elements<float>();
  return std::all_of(elements.begin(), elements.end(), [&](float x) { return x == expected; });
}

// What is normalized in groups.
struct Groups {
  ValueId x;
  int64_t count;
  float epsilon;
};

// x[batch, channels, ...] whose channels a Reshape joins in groups for InstanceNormalization, after
// which another one gives back its shape.
std::optional<Groups> GroupsOf(const Graph& graph, const GraphMatcher& match, ValueId id) {
  const Node* back = match.Producer(id, "Reshape");
  if (back == nullptr) return std::nullopt;
  const Node* normalization = match.Producer(back->inputs[0], "InstanceNormalization");
  if (normalization == nullptr || normalization->inputs.size() != 3) return std::nullopt;
  const Node* join = match.Producer(normalization->inputs[0], "Reshape");
  if (join == nullptr || !IsFloat(graph, join->inputs[0])) return std::nullopt;
  const ValueId x = join->inputs[0];
  const auto &shape = ShapeOf(graph, x), &joined = ShapeOf(graph, join->outputs[0]);
  if (!shape || !joined || shape->size() < 3 || joined->size() < 3) return std::nullopt;
  const Dimension &batch = (*shape)[0], &channels = (*shape)[1], &groups = (*joined)[1];
  const bool same_batch = batch == (*joined)[0] && (batch.known() || !batch.symbol.empty());
  if (!same_batch || !channels.known() || !groups.known() || groups.value < 1 ||
      channels.value % groups.value != 0 || !SameKnownShape(graph, x, id) ||
      !IsFilledWith(graph, normalization->inputs[1], 1) ||
      !IsFilledWith(graph, normalization->inputs[2], 0)) {
    return std::nullopt;
  }
  return Groups{x, groups.value, normalization->attributes.Float("epsilon", 1e-5f)};
}

// Whether the initializer has one number per channel of x[batch, channels, ...].
bool IsPerChannel(const Graph& graph, ValueId id, ValueId x) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || found->second.type() != DataType::kFloat) return false;
  const Shape& shape = found->second.shape();
  const auto& of_x = *ShapeOf(graph, x);
  const int behind = static_cast<int>(of_x.size()) - 2;
  if (shape.rank() != behind + 1 && shape.rank() != behind + 2) return false;
  const int64_t channels = of_x[1].value;
  return shape[shape.rank() - behind - 1] == channels && shape.ElementCount() == channels;
}

// The constant beside what is computed in a node of that type, one number per channel of x.
ValueId PerChannel(const Graph& graph, const GraphMatcher& match, const Node& node, ValueId x) {
  const auto operands = match.BesideConstant(node);
  return operands && IsPerChannel(graph, operands->constant, x) ? operands->constant : kNoValue;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "group_normalization"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      ONNXD_ASSIGN_OR_RETURN(const bool rewritten, Rewrite(graph, match, node));
      changed = changed || rewritten;
    }
    return changed;
  }

 private:
  static Result<bool> Rewrite(Graph& graph, const GraphMatcher& match, Node& node) {
    if (!node.Is("Add")) return false;
    const auto sum = match.BesideConstant(node);
    const Node* product = sum ? match.Producer(sum->value, "Mul") : nullptr;
    const auto factors = product != nullptr ? match.BesideConstant(*product) : std::nullopt;
    if (!factors) return false;
    const auto groups = GroupsOf(graph, match, factors->value);
    if (!groups) return false;
    const ValueId scale = PerChannel(graph, match, *product, groups->x);
    const ValueId bias = PerChannel(graph, match, node, groups->x);
    if (scale == kNoValue || bias == kNoValue) return false;
    ONNXD_ASSIGN_OR_RETURN(const ValueId scales, AsRow(graph, scale));
    ONNXD_ASSIGN_OR_RETURN(const ValueId biases, AsRow(graph, bias));
    node.op_type = "GroupNormalization";
    node.since_version = 21;
    node.inputs = {groups->x, scales, biases};
    node.attributes = {};
    node.attributes.Set("num_groups", groups->count);
    node.attributes.Set("epsilon", groups->epsilon);
    return true;
  }

  static Result<ValueId> AsRow(Graph& graph, ValueId id) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor plain, graph.initializers.at(id).Materialize());
    const std::string name = graph.value(id).name + "_row";
    return graph.AddInitializer(name, plain.Reshaped(Shape{plain.ElementCount()}));
  }
};

}  // namespace

const GraphPass* GroupNormalizationFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
