#include "runtime/session/dropped_tokens.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/graph/node_writer.h"
#include "runtime/ops/shape_inference.h"

namespace onnxd {
namespace {

struct TokenState {
  ValueId id;
  int64_t axis;  // of the tokens
};

std::optional<TokenState> StateOf(const Graph& graph, ValueId id, const std::string& prefix) {
  const ValueInfo& value = graph.value(id);
  if (!value.name.starts_with(prefix) || !value.type.is_tensor() || !value.type.shape) return {};
  std::vector<int64_t> free;
  for (size_t axis = 0; axis < value.type.shape->size(); ++axis) {
    if (!(*value.type.shape)[axis].known()) free.push_back(static_cast<int64_t>(axis));
  }
  return free.size() == 2 ? std::optional(TokenState{id, free[1]}) : std::nullopt;
}

// What Append takes.
bool IsAppendable(DataType type) {
  constexpr std::array kTypes = {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16,
                                 DataType::kInt8, DataType::kUint8};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

// Whether the node puts new tokens behind those of the state.
bool Appends(const Graph& graph, const Node& node, const TokenState& state) {
  if (!IsAppendable(graph.value(state.id).type.element)) return false;
  const auto rank = static_cast<int64_t>(graph.value(state.id).type.shape->size());
  const int64_t axis = node.attributes.Int("axis", 0);
  return node.Is("Concat") && node.inputs.size() == 2 && node.inputs[0] == state.id &&
         node.inputs[1] != state.id && (axis < 0 ? axis + rank : axis) == state.axis;
}

// What else reads the state sees it without these tokens.
bool ReplaceInputs(Graph& graph, ValueId from, ValueId to) {
  bool replaced = false;
  for (Node& node : graph.nodes) {
    if (node.Is("Append", "onnxd")) continue;
    for (auto* list : {&node.inputs, &node.captures}) {
      for (ValueId& id : *list) {
        if (id != from) continue;
        id = to;
        replaced = true;
      }
    }
  }
  return replaced;
}

void Drop(Graph& graph, const TokenState& state, ValueId dropped, std::vector<Node>& nodes) {
  for (Node& node : graph.nodes) {
    if (!Appends(graph, node, state)) continue;
    node.domain = "onnxd";
    node.op_type = "Append";
    node.since_version = 1;
    node.inputs.push_back(dropped);
    node.attributes.Set("axis", state.axis);
  }
  const std::string name = graph.value(state.id).name;
  const ValueId kept = graph.AddUniqueValue(name);
  if (!ReplaceInputs(graph, state.id, kept)) return;
  NodeWriter writer(graph, nodes, name);
  const ValueId begin = writer.Add("Shape", {dropped});
  const ValueId end = writer.Integers({std::numeric_limits<int64_t>::max()});
  writer.AddTo(kept, "Slice", {state.id, begin, end, writer.Integers({state.axis})});
}

}  // namespace

Status AddDroppedTokens(const DroppedTokens& wanted, Graph& graph) {
  if (wanted.states.empty() || graph.FindValue(DroppedTokens::kInput) != kNoValue) {
    return Status::Ok();
  }
  std::vector<TokenState> states;
  for (const ValueId id : graph.inputs) {
    const auto state = StateOf(graph, id, wanted.states);
    if (state && !graph.IsOutput(id)) states.push_back(*state);
  }
  if (states.empty()) return Status::Ok();
  const Dimension count = Dimension::Symbol(DroppedTokens::kInput);
  const ValueId dropped = graph.AddValue(
      DroppedTokens::kInput, ValueType::TensorOf(DataType::kInt64, SymbolicShape{count}));
  graph.inputs.push_back(dropped);
  std::vector<Node> nodes;
  for (const TokenState& state : states) Drop(graph, state, dropped, nodes);
  graph.nodes.insert(graph.nodes.end(), nodes.begin(), nodes.end());
  ONNXD_RETURN_IF_ERROR(graph.SortNodes());
  return InferGraph(graph);
}

}  // namespace onnxd
