#include "runtime/providers/fused/body_writer.h"

#include <algorithm>
#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/device/dialect.h"
#include "runtime/providers/gpu/pointwise_expressions.h"

namespace onnxd {
namespace {

std::optional<std::string> ExpressionOf(const Graph& graph, const Node& node,
                                        const std::vector<std::string>& operands) {
  std::vector<DataType> types;
  for (const ValueId id : node.inputs) {
    types.push_back(id == kNoValue ? DataType::kUndefined : graph.value(id).type.element);
  }
  return PointwiseExpression(node, types, graph.value(node.outputs[0]).type.element, operands);
}

// Scales of one number, which any x is broadcast with.
bool HasOneScale(const Graph& graph, const Node& node) {
  const auto& scale = graph.value(node.input(1)).type.shape;
  const auto& x = graph.value(node.input(0)).type.shape;
  if (!scale || !x || scale->size() > x->size()) return false;
  return std::all_of(scale->begin(), scale->end(),
                     [](const Dimension& d) { return d.known() && d.value == 1; });
}

bool IsQuantization(const Node& node) {
  return node.Is("QuantizeLinear") || node.Is("DequantizeLinear");
}

// Before version 7 shapes are broadcast by an attribute.
bool HasLegacyBroadcast(const Node& node) {
  return node.domain.empty() && node.inputs.size() > 1 && node.since_version < 7;
}

}  // namespace

bool IsPointwise(const Graph& graph, const Node& node) {
  constexpr size_t kMostInputs = 8;
  if (node.outputs.size() != 1 || node.outputs[0] == kNoValue || !node.captures.empty() ||
      node.inputs.empty() || node.inputs.size() > kMostInputs || HasLegacyBroadcast(node) ||
      node.Is("CastLike")) {
    return false;
  }
  if (IsQuantization(node) && !HasOneScale(graph, node)) return false;
  std::vector<std::string> operands;
  for (const ValueId id : node.inputs) {
    operands.push_back(id == kNoValue ? "" : "x");
    if (id != kNoValue && !IsDeviceType(graph.value(id).type.element)) return false;
  }
  return IsDeviceType(graph.value(node.outputs[0]).type.element) &&
         ExpressionOf(graph, node, operands).has_value();
}

void BodyWriter::Add(const Node& node) {
  std::vector<std::string> operands;
  for (const ValueId id : node.inputs) operands.push_back(id == kNoValue ? "" : names_.at(id));
  std::string expression = *ExpressionOf(graph_, node, operands);
  const DataType type = graph_.value(node.outputs[0]).type.element;
  // Casts are asked for, unlike the roundings between operators.
  if (node.Is("Cast") && type == DataType::kFloat16) {
    expression = StrCat("f16_to_f32(f32_to_f16(", expression, "))");
  } else if (node.Is("Cast") && type == DataType::kBfloat16) {
    expression = StrCat("bf16_to_f32(f32_to_bf16(", expression, "))");
  }
  const std::string name = StrCat("v", node.outputs[0]);
  statements_ += StrCat("const ", ComputeName(type), " ", name, " = ", expression, "; ");
  names_[node.outputs[0]] = name;
}

}  // namespace onnxd
