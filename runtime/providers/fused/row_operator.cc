#include "runtime/providers/fused/row_operator.h"

#include <algorithm>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/shape_inference.h"

namespace onnxd {
namespace {

bool SumsInFloat(const Graph& graph, ValueId id) {
  const DataType type = id == kNoValue ? DataType::kUndefined : graph.value(id).type.element;
  return type == DataType::kFloat || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

bool IsNormalization(const Node& node) {
  return node.Is("LayerNormalization") || node.Is("RMSNormalization") ||
         node.Is("SimplifiedLayerNormalization");
}

bool HasOneOutput(const Node& node) {
  return std::count_if(node.outputs.begin(), node.outputs.end(),
                       [](ValueId id) { return id != kNoValue; }) == 1;
}

// How many of the last axes are reduced, when these are all; the axes must be an attribute.
std::optional<int> TrailingAxes(const Node& node, int rank) {
  if (ReductionAxesAreInput(node)) return std::nullopt;
  const auto axes = ReductionAxes(node, node.attributes.Ints("axes"), rank);
  if (!axes.ok() || axes->empty()) return std::nullopt;
  for (size_t i = 0; i < axes->size(); ++i) {
    if ((*axes)[i] != rank - static_cast<int>(axes->size() - i)) return std::nullopt;
  }
  return static_cast<int>(axes->size());
}

}  // namespace

bool IsReduction(const Node& node) {
  static constexpr std::string_view kReductions[] = {"ReduceL1",       "ReduceL2",  "ReduceMax",
                                                     "ReduceMean",     "ReduceMin", "ReduceSum",
                                                     "ReduceSumSquare"};
  return node.domain.empty() && std::find(std::begin(kReductions), std::end(kReductions),
                                          node.op_type) != std::end(kReductions);
}

bool IsRowOperator(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || !SumsInFloat(graph, node.inputs[0]) || !HasOneOutput(node)) {
    return false;
  }
  const auto rank = RankOf(graph, node.inputs[0]);
  if (!rank || *rank < 1) return false;
  if (IsReduction(node)) return TrailingAxes(node, *rank).has_value();
  if (node.Is("Softmax") || node.Is("LogSoftmax")) {
    const int64_t axis = node.attributes.Int("axis", node.since_version < 13 ? 1 : -1);
    return axis == -1 || axis == *rank - 1;
  }
  if (!IsNormalization(node) || node.inputs.size() > 3) return false;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] != kNoValue && !SumsInFloat(graph, node.inputs[i])) return false;
  }
  return NormalizeAxis(node.attributes.Int("axis", -1), *rank).ok();
}

int RowAxes(const Node& node, int rank) {
  if (IsReduction(node)) return TrailingAxes(node, rank).value_or(rank);
  if (!IsNormalization(node)) return 1;
  const auto axis = NormalizeAxis(node.attributes.Int("axis", -1), rank);
  return axis.ok() ? rank - *axis : 1;
}

}  // namespace onnxd
