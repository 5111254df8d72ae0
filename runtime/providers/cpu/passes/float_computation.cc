#include "runtime/providers/cpu/passes/float_computation.h"

#include <algorithm>
#include <string_view>

#include "runtime/fusion/retyping.h"
#include "runtime/ops/op_schema.h"
#include "runtime/providers/cpu/float_conversion.h"

namespace onnxd {
namespace {

bool IsOneOf(const Node& node, std::initializer_list<std::string_view> operators) {
  return node.domain.empty() && std::find(operators.begin(), operators.end(),
                                          std::string_view(node.op_type)) != operators.end();
}

// What the rewriter lets follow their first input, so that an embedding stays a table of 16 bits.
bool FollowsItsInput(const Node& node) {
  return IsOneOf(node, {"DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
                        "Identity", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
                        "Transpose", "Unsqueeze"});
}

// An attribute names the type of a result.
bool StatesItsType(const Node& node) {
  return node.attributes.Has("to") || node.attributes.Has("dtype") ||
         node.attributes.Has("output_dtype");
}

bool HasBodies(const Node& node) {
  return !node.captures.empty() ||
         std::any_of(node.attributes.entries().begin(), node.attributes.entries().end(),
                     [](const auto& entry) {
                       return std::holds_alternative<std::shared_ptr<Graph>>(entry.second);
                     });
}

// A cache that comes in, grows and goes out again: converting all of it costs more than it saves.
bool GrowsAnInput(const Graph& graph, const Node& node) {
  return IsOneOf(node, {"Concat"}) &&
         std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
           return std::find(graph.inputs.begin(), graph.inputs.end(), id) != graph.inputs.end();
         });
}

bool AllowsFloat(const OpSchema& schema, const OperandRow* row, ValueType type) {
  type.element = DataType::kFloat;
  return row != nullptr && schema.type_sets[row->type_set].Contains(type);
}

// Reads no elements, whatever their type.
bool ReadsTheShapeAlone(const Node& node) { return IsOneOf(node, {"Shape", "Size"}); }

// Inputs of that type, where the operator means the same of floats.
std::vector<size_t> NarrowInputs(const Graph& graph, const Node& node, DataType narrow) {
  if (FollowsItsInput(node) || ReadsTheShapeAlone(node) || StatesItsType(node) || HasBodies(node) ||
      GrowsAnInput(graph, node)) {
    return {};
  }
  if (node.domain == "onnxd") return {};  // what passes wrote for the types that there were
  const OpSchema* schema = FindStandardSchema(node.domain, node.op_type, node.since_version);
  if (schema == nullptr) return {};
  std::vector<size_t> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const ValueType& type = graph.value(node.inputs[i]).type;
    if (!type.is_tensor()) return {};
    if (type.element != narrow) continue;
    if (!AllowsFloat(*schema, schema->Input(static_cast<int>(i)), type)) return {};
    inputs.push_back(i);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    const ValueType& type = graph.value(node.outputs[i]).type;
    if (!type.is_tensor()) return {};
    if (type.element != narrow) continue;
    if (!AllowsFloat(*schema, schema->Output(static_cast<int>(i)), type)) return {};
  }
  return inputs;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "float_computation"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext& context) const override {
    const auto is_anothers = [&](const Node& node) { return context.owns && !context.owns(node); };
    if (std::any_of(graph.nodes.begin(), graph.nodes.end(), is_anothers)) return false;
    bool changed = false;
    for (const DataType narrow : {DataType::kFloat16, DataType::kBfloat16}) {
      RetypingRules rules;
      rules.from = narrow;
      rules.to = DataType::kFloat;
      rules.suffix = "_float";
      rules.inputs = [narrow](const Graph& of, const Node& node) {
        return NarrowInputs(of, node, narrow);
      };
      rules.convert = [narrow](const void* from, void* to, int64_t count) {
        ConvertFloats(narrow, from, DataType::kFloat, to, count);
      };
      rules.also_moves = FollowsItsInput;
      changed = RetypeNodes(graph, rules) || changed;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* FloatComputation() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
