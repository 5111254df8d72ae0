#include "runtime/graph/graph_match.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

bool IsPermutation(const std::vector<int64_t>& order) {
  std::vector<bool> seen(order.size(), false);
  for (const int64_t axis : order) {
    if (axis < 0 || axis >= static_cast<int64_t>(order.size()) || seen[static_cast<size_t>(axis)]) {
      return false;
    }
    seen[static_cast<size_t>(axis)] = true;
  }
  return true;
}

}  // namespace

std::optional<float> ScalarConstant(const Graph& graph, ValueId id) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || !IsFloatingPoint(found->second.type()) ||
      found->second.shape().ElementCount() != 1) {
    return std::nullopt;
  }
  const auto tensor = found->second.Materialize();
  if (!tensor.ok()) return std::nullopt;
  const auto converted = Converted(*tensor, DataType::kFloat);
  return converted.ok() ? std::optional(*converted->data<float>()) : std::nullopt;
}

std::optional<Bounds> ClipBounds(const Graph& graph, const Node& node) {
  using Limits = std::numeric_limits<float>;
  const auto ordered = [](float low, float high) {
    return low <= high ? std::optional(Bounds{low, high}) : std::nullopt;
  };
  if (node.since_version < 11) {
    return ordered(node.attributes.Float("min", Limits::lowest()),
                   node.attributes.Float("max", Limits::max()));
  }
  const auto bound = [&](size_t input, float fallback) -> std::optional<float> {
    const ValueId id = node.input(input);
    return id == kNoValue ? fallback : ScalarConstant(graph, id);
  };
  const auto low = bound(1, -Limits::infinity()), high = bound(2, Limits::infinity());
  if (!low || !high) return std::nullopt;
  return ordered(*low, *high);
}

std::optional<std::vector<int64_t>> IntsConstant(const Graph& graph, ValueId id) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end()) return std::nullopt;
  const DataType type = found->second.type();
  if (type != DataType::kInt64 && type != DataType::kInt32) return std::nullopt;
  const auto tensor = found->second.Materialize();
  if (!tensor.ok()) return std::nullopt;
  if (type == DataType::kInt64) {
    const auto elements = tensor->elements<int64_t>();
    return std::vector<int64_t>(elements.begin(), elements.end());
  }
  const auto elements = tensor->elements<int32_t>();
  return std::vector<int64_t>(elements.begin(), elements.end());
}

std::optional<std::vector<int64_t>> AxesOfReduction(const Graph& graph, const Node& node) {
  if (node.input(1) == kNoValue) return node.attributes.Ints("axes");
  return IntsConstant(graph, node.input(1));
}

std::optional<int> RankOf(const Graph& graph, ValueId id) {
  if (id == kNoValue || !graph.value(id).type.shape) return std::nullopt;
  return static_cast<int>(graph.value(id).type.shape->size());
}

bool IsFloat(const Graph& graph, ValueId id) {
  return id != kNoValue && graph.value(id).type.is_tensor() &&
         graph.value(id).type.element == DataType::kFloat;
}

std::optional<std::vector<int64_t>> TransposeOrder(const Graph& graph, const Node& node) {
  std::vector<int64_t> order = node.attributes.Ints("perm");
  if (!order.empty()) return IsPermutation(order) ? std::optional(order) : std::nullopt;
  const auto rank = RankOf(graph, node.inputs[0]);
  if (!rank) return std::nullopt;
  for (int64_t axis = *rank - 1; axis >= 0; --axis) order.push_back(axis);
  return order;
}

bool SameKnownExtent(const Dimension& a, const Dimension& b) {
  return a == b && (a.known() || !a.symbol.empty());
}

bool SameKnownShape(const Graph& graph, ValueId a, ValueId b) {
  const ValueType& left = graph.value(a).type;
  const ValueType& right = graph.value(b).type;
  return left.shape && right.shape &&
         std::equal(left.shape->begin(), left.shape->end(), right.shape->begin(),
                    right.shape->end(), SameKnownExtent);
}

std::optional<std::vector<int64_t>> ReshapeTarget(const SymbolicShape& from,
                                                  const SymbolicShape& to) {
  std::vector<int64_t> target;
  for (size_t axis = 0; axis < to.size(); ++axis) {
    const bool copied = axis < from.size() && SameKnownExtent(from[axis], to[axis]);
    target.push_back(to[axis].known() ? to[axis].value : copied ? 0 : -1);
    if (to[axis].value == 0) return std::nullopt;
  }
  if (std::count(target.begin(), target.end(), -1) > 1) return std::nullopt;
  return target;
}

const Node* GraphMatcher::Producer(ValueId id, std::string_view op_type) const {
  if (id == kNoValue) return nullptr;
  const int position = index_.producer(id);
  if (position < 0) return nullptr;
  const Node& node = graph_.nodes[static_cast<size_t>(position)];
  return node.Is(op_type) ? &node : nullptr;
}

std::optional<GraphMatcher::Operands> GraphMatcher::BesideConstant(const Node& node) const {
  if (node.inputs.size() != 2) return std::nullopt;
  const ValueId a = node.inputs[0], b = node.inputs[1];
  if (graph_.IsInitializer(b) && !graph_.IsInitializer(a)) return Operands{a, b};
  if (graph_.IsInitializer(a) && !graph_.IsInitializer(b)) return Operands{b, a};
  return std::nullopt;
}

std::optional<GraphMatcher::Scaled> GraphMatcher::BesideAnyScalar(ValueId id,
                                                                  std::string_view op_type) const {
  const Node* node = Producer(id, op_type);
  if (node == nullptr) return std::nullopt;
  const auto operands = BesideConstant(*node);
  if (!operands) return std::nullopt;
  const bool ordered = op_type == "Div" || op_type == "Sub" || op_type == "Pow";
  if (ordered && operands->constant != node->inputs[1]) return std::nullopt;
  const auto scalar = ScalarConstant(graph_, operands->constant);
  if (!scalar) return std::nullopt;
  const int rank = graph_.initializers.at(operands->constant).shape().rank();
  if (rank > RankOf(graph_, operands->value).value_or(0)) return std::nullopt;
  return Scaled{operands->value, *scalar};
}

ValueId GraphMatcher::BesideScalar(ValueId id, std::string_view op_type, float expected) const {
  const auto found = BesideAnyScalar(id, op_type);
  if (!found || std::abs(found->scalar - expected) > 1e-3f * std::abs(expected)) return kNoValue;
  return found->value;
}

ValueId GraphMatcher::OtherOperand(const Node& node, ValueId one) {
  if (node.inputs.size() != 2) return kNoValue;
  if (node.inputs[0] == one) return node.inputs[1];
  return node.inputs[1] == one ? node.inputs[0] : kNoValue;
}

}  // namespace onnxd
