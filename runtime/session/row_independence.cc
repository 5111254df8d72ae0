#include "runtime/session/row_independence.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// Results that depend on all rows, on chance, or on conditions that the rows decide.
const std::set<std::string>& MixingOperators() {
  static const std::set<std::string> operators = {"Bernoulli",
                                                  "BeamSearch",
                                                  "Compress",
                                                  "DynamicQuantizeLSTM",
                                                  "DynamicQuantizeLinear",
                                                  "DynamicQuantizeMatMul",
                                                  "GreedySearch",
                                                  "If",
                                                  "Loop",
                                                  "Multinomial",
                                                  "NonMaxSuppression",
                                                  "NonZero",
                                                  "RandomNormal",
                                                  "RandomNormalLike",
                                                  "RandomUniform",
                                                  "RandomUniformLike",
                                                  "Sampling",
                                                  "Scan",
                                                  "SequenceMap",
                                                  "Unique",
                                                  "WhisperBeamSearch"};
  return operators;
}

bool IsReduction(const Node& node) {
  static const std::set<std::string> others = {
      "ArgMax",  "ArgMin",     "CumSum",
      "Hardmax", "LogSoftmax", "LpNormalization",
      "Softmax", "TopK",       "MeanVarianceNormalization"};
  return node.domain.empty() &&
         (node.op_type.starts_with("Reduce") || others.contains(node.op_type));
}

// Elements that requests can be joined by.
bool HasWholeBytes(DataType type) {
  return type != DataType::kUndefined && type != DataType::kString &&
         TensorBytes(type, 1) == TensorBytes(type, 2).value_or(0) / 2;
}

// Why an input or output of the model has no rows; `symbol` is what the first dimension of the
// others is called.
std::string WhyNoRows(const ValueInfo& value, std::optional<std::string>& symbol) {
  const ValueType& type = value.type;
  if (!type.is_tensor() || !HasWholeBytes(type.element)) {
    return StrCat("'", value.name, "' is not a tensor of numbers");
  }
  if (!type.shape || type.shape->empty())
    return StrCat("'", value.name, "' has no first dimension");
  const Dimension& first = type.shape->front();
  if (first.known()) {
    return StrCat("the first dimension of '", value.name, "' is ", first.value);
  }
  if (symbol && *symbol != first.symbol) {
    return StrCat("the first dimension of '", value.name, "' is '", first.symbol, "', of others '",
                  *symbol, "'");
  }
  symbol = first.symbol;
  return "";
}

// Axes that a reduction reads along; nullopt when only its inputs know. Empty: all.
std::optional<std::vector<int64_t>> AxesOf(const Graph& graph, const Node& node) {
  if (node.op_type == "CumSum" || (node.op_type.starts_with("Reduce") && node.inputs.size() > 1)) {
    if (node.input(1) == kNoValue) return std::vector<int64_t>{};
    const auto constant = graph.initializers.find(node.inputs[1]);
    if (constant == graph.initializers.end()) return std::nullopt;
    const auto axes = constant->second.Materialize();
    if (!axes.ok()) return std::nullopt;
    if (axes->type() == DataType::kInt32) {
      const auto elements = axes->elements<int32_t>();
      return std::vector<int64_t>(elements.begin(), elements.end());
    }
    if (axes->type() != DataType::kInt64) return std::nullopt;
    const auto elements = axes->elements<int64_t>();
    return std::vector<int64_t>(elements.begin(), elements.end());
  }
  if (node.op_type == "MeanVarianceNormalization" || node.op_type.starts_with("Reduce")) {
    auto axes = node.attributes.Ints("axes");
    if (axes.empty() && node.op_type[0] == 'M') axes = {0, 2, 3};
    return axes;
  }
  const bool from_first = node.op_type.starts_with("Arg");
  const bool old = node.since_version < 13 && node.op_type.ends_with("max") && !from_first;
  return std::vector<int64_t>{node.attributes.Int("axis", from_first ? 0 : old ? 1 : -1)};
}

bool IsBatch(const Dimension& dimension, const std::string& symbol) {
  return !dimension.known() && dimension.symbol == symbol;
}

std::string WhyReductionMixes(const Graph& graph, const Node& node, const std::string& symbol) {
  const auto& shape = graph.value(node.inputs[0]).type.shape;
  if (!shape) return StrCat(Describe(node), " reduces a tensor of unknown shape");
  const auto is_batch = [&](const Dimension& dimension) { return IsBatch(dimension, symbol); };
  if (std::none_of(shape->begin(), shape->end(), is_batch)) return "";
  auto axes = AxesOf(graph, node);
  if (!axes) return StrCat(Describe(node), " reduces axes that are computed");
  const auto rank = static_cast<int64_t>(shape->size());
  if (axes->empty()) {
    if (node.attributes.Int("noop_with_empty_axes", 0) != 0) return "";
    for (int64_t axis = 0; axis < rank; ++axis) axes->push_back(axis);
  }
  for (const int64_t axis : *axes) {
    const int64_t at = axis < 0 ? axis + rank : axis;
    if (at >= 0 && at < rank && is_batch((*shape)[static_cast<size_t>(at)])) {
      return StrCat(Describe(node), " computes over the first dimension of the inputs");
    }
  }
  return "";
}

std::string WhyNodeMixes(const Graph& graph, const Node& node, const std::string& symbol) {
  if (MixingOperators().contains(node.op_type)) return StrCat(Describe(node), " looks at all rows");
  if (node.Is("BatchNormalization") && node.attributes.Int("training_mode", 0) != 0) {
    return StrCat(Describe(node), " is in training mode");
  }
  if (node.Is("CDist", "com.microsoft") && !graph.initializers.contains(node.inputs[1])) {
    return StrCat(Describe(node), " looks at all rows");
  }
  return IsReduction(node) ? WhyReductionMixes(graph, node, symbol) : "";
}

}  // namespace

std::string WhyRowsDepend(const Graph& graph) {
  if (graph.inputs.empty()) return "the model has no inputs";
  std::optional<std::string> symbol;
  for (const auto* ids : {&graph.inputs, &graph.outputs}) {
    for (const ValueId id : *ids) {
      std::string why = WhyNoRows(graph.value(id), symbol);
      if (!why.empty()) return why;
    }
  }
  if (symbol->empty() && graph.inputs.size() > 1) {
    return "the first dimension of the inputs has no name";
  }
  for (const Node& node : graph.nodes) {
    std::string why = WhyNodeMixes(graph, node, *symbol);
    if (!why.empty()) return why;
  }
  return "";
}

}  // namespace onnxd
