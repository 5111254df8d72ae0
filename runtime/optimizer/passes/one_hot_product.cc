#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// Floats that the table may have: a row is added at either end, or twice the rows where indices
// count from the end, too.
constexpr int64_t kMostElements = int64_t{1} << 22;

// A row of `depth` numbers for each index, 1 at its place and 0 elsewhere.
struct OneHot {
  ValueId indices = kNoValue;  // int32 or int64
  int64_t depth = 0;
  bool has_axis = false;  // the indices end with an axis of 1, along which the row is written
  bool from_end = false;  // -1 stands for the last place; else negative ones have none
};

bool IsIndex(const Graph& graph, ValueId id) {
  const ValueType& type = graph.value(id).type;
  return type.is_tensor() && (type.element == DataType::kInt32 || type.element == DataType::kInt64);
}

// n of an initializer 0, 1, ..., n - 1 along the last axis, the only one; 0 for anything else.
int64_t CountedTo(const Graph& graph, ValueId id) {
  const Shape& shape = graph.initializers.at(id).shape();
  if (shape.rank() == 0 || shape.ElementCount() != shape[shape.rank() - 1]) return 0;
  const auto elements = IntsConstant(graph, id);
  if (!elements) return 0;
  for (size_t i = 0; i < elements->size(); ++i) {
    if ((*elements)[i] != static_cast<int64_t>(i)) return 0;
  }
  return static_cast<int64_t>(elements->size());
}

// Cast(Equal(indices, 0 .. depth - 1)), as JAX and Keras write it.
std::optional<OneHot> ByComparison(const Graph& graph, const GraphMatcher& match, ValueId id) {
  const Node* cast = match.Producer(id, "Cast");
  const Node* equal = cast == nullptr ? nullptr : match.Producer(cast->inputs[0], "Equal");
  const auto operands = equal == nullptr ? std::nullopt : match.BesideConstant(*equal);
  if (!operands || !IsIndex(graph, operands->value)) return std::nullopt;
  const auto& shape = graph.value(operands->value).type.shape;
  if (!shape || shape->empty() || !(shape->back() == Dimension(1))) return std::nullopt;
  if (graph.initializers.at(operands->constant).shape().rank() > static_cast<int>(shape->size())) {
    return std::nullopt;
  }
  return OneHot{operands->value, CountedTo(graph, operands->constant), true, false};
}

// The operator, with values 0 and 1 on a new last axis.
std::optional<OneHot> ByOperator(const Graph& graph, const GraphMatcher& match, ValueId id) {
  const Node* node = match.Producer(id, "OneHot");
  if (node == nullptr || !IsIndex(graph, node->inputs[0])) return std::nullopt;
  const auto rank = RankOf(graph, node->inputs[0]);
  const int64_t axis = node->attributes.Int("axis", -1);
  if (!rank || (axis != -1 && axis != *rank)) return std::nullopt;
  const auto depth = IntsConstant(graph, node->inputs[1]);
  const auto values = graph.initializers.find(node->inputs[2]);
  if (!depth || depth->size() != 1 || values == graph.initializers.end() ||
      values->second.type() != DataType::kFloat || values->second.shape().ElementCount() != 2) {
    return std::nullopt;
  }
  const auto off_on = values->second.Materialize();
  if (!off_on.ok() || off_on->data<float>()[0] != 0 || off_on->data<float>()[1] != 1) {
    return std::nullopt;
  }
  return OneHot{node->inputs[0], depth->front(), false, true};
}

// Zeros, the matrix (twice where indices count from the end, too), zeros. Nullopt where a product
// with 0 would not be 0.
std::optional<Tensor> TableOf(const Tensor& matrix, bool twice) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  const float* from = matrix.data<float>();
  if (!std::all_of(from, from + rows * columns, [](float x) { return std::isfinite(x); })) {
    return std::nullopt;
  }
  auto table = Tensor::Create(DataType::kFloat, Shape{(twice ? 2 : 1) * rows + 2, columns});
  if (!table.ok()) return std::nullopt;
  float* to = table->mutable_data<float>();
  to = std::fill_n(to, columns, 0.0f);
  for (int copy = 0; copy < (twice ? 2 : 1); ++copy) to = std::copy_n(from, rows * columns, to);
  std::fill_n(to, columns, 0.0f);
  return std::move(*table);
}

Tensor Number(DataType type, int64_t value) {
  return type == DataType::kInt32 ? Tensor::Scalar(static_cast<int32_t>(value))
                                  : Tensor::Scalar(value);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "one_hot_product"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    std::vector<Node> added;
    for (Node& node : graph.nodes) {
      if (node.Is("MatMul")) TryGather(graph, match, node, added);
    }
    for (Node& node : added) graph.nodes.push_back(std::move(node));
    return !added.empty();
  }

 private:
  static void TryGather(Graph& graph, const GraphMatcher& match, Node& node,
                        std::vector<Node>& added) {
    auto one_hot = ByComparison(graph, match, node.inputs[0]);
    if (!one_hot) one_hot = ByOperator(graph, match, node.inputs[0]);
    const auto weights = graph.initializers.find(node.inputs[1]);
    if (!one_hot || !IsFloat(graph, node.inputs[0]) || weights == graph.initializers.end() ||
        weights->second.shape().rank() != 2 || weights->second.shape()[0] != one_hot->depth ||
        weights->second.shape().ElementCount() > kMostElements ||
        match.index().use_count(node.inputs[1]) != 1) {
      return;
    }
    const auto matrix = weights->second.Materialize();
    auto table = matrix.ok() ? TableOf(*matrix, one_hot->from_end) : std::nullopt;
    if (!table) return;
    const std::string name = graph.value(node.outputs[0]).name;
    const DataType type = graph.value(one_hot->indices).type.element;
    const int64_t least = one_hot->from_end ? -one_hot->depth - 1 : -1;
    const auto add = [&](const char* op_type, int version, std::vector<ValueId> inputs) {
      Node& made = added.emplace_back();
      made.op_type = op_type;
      made.since_version = version;
      made.name = name + "_" + op_type;
      made.inputs = std::move(inputs);
      made.outputs = {graph.AddUniqueValue(made.name)};
      return made.outputs[0];
    };
    const auto number = [&](const char* what, int64_t value) {
      return graph.AddInitializer(name + what, Number(type, value));
    };
    // What has no place reads the zeros at either end.
    ValueId rows =
        add("Clip", 13,
            {one_hot->indices, number("_least", least), number("_largest", one_hot->depth)});
    rows = add("Add", 14, {rows, number("_first", -least)});
    if (one_hot->has_axis) {
      const auto last = Tensor::Of<int64_t>(Shape{1}, {-1});
      rows = add("Squeeze", 13, {rows, graph.AddInitializer(name + "_axes", last)});
    }
    node.op_type = "Gather";
    node.since_version = 13;
    node.attributes = {};
    node.attributes.Set("axis", int64_t{0});
    node.inputs = {graph.AddInitializer(name + "_table", std::move(*table)), rows};
  }
};

}  // namespace

const GraphPass* OneHotProduct() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
