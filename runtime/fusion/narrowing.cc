#include "runtime/fusion/narrowing.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

constexpr size_t kOperands = 2;  // of a product, before what is added to it

class Rewriter {
 public:
  Rewriter(Graph& graph, const NarrowingRules& rules)
      : graph_(graph), rules_(rules), read_(ReadNarrow()) {
    for (const Node& node : graph.nodes) {
      if (node.Is("Cast") && ElementOf(node.inputs[0]) == rules_.type &&
          ElementOf(node.outputs[0]) == DataType::kFloat) {
        narrow_[node.outputs[0]] = node.inputs[0];
      }
    }
  }

  Result<bool> Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    bool changed = false;
    for (Node& node : nodes) {
      const std::vector<size_t> inputs = rules_.inputs(graph_, node);
      if (!inputs.empty()) {
        ONNXD_RETURN_IF_ERROR(NarrowNode(std::move(node), inputs));
        changed = true;
      } else if (Moves(node) && narrow_.contains(node.inputs[0])) {
        ONNXD_RETURN_IF_ERROR(Rewrite(std::move(node), {0}));
        changed = true;
      } else {
        if (node.Is("Shape") && narrow_.contains(node.inputs[0])) {
          node.inputs[0] = narrow_[node.inputs[0]];  // which spares a Cast that nobody reads
        }
        graph_.nodes.push_back(std::move(node));
      }
    }
    return changed;
  }

 private:
  // Whether the node only moves, or chooses among, the elements of its first input.
  bool Moves(const Node& node) const {
    constexpr std::string_view kMovements[] = {"Flatten", "Gather",    "Identity",
                                               "Reshape", "Slice",     "Split",
                                               "Squeeze", "Transpose", "Unsqueeze"};
    if (rules_.also_moves && rules_.also_moves(node)) return true;
    return node.domain.empty() && std::find(std::begin(kMovements), std::end(kMovements),
                                            node.op_type) != std::end(kMovements);
  }

  bool CanEndInFloat(const Node& node) const {
    return rules_.can_end_in_float && rules_.can_end_in_float(node);
  }

  // What some node will want in the narrow type. What is added to a product that may end in float
  // is not among it.
  std::set<ValueId> ReadNarrow() const {
    std::set<ValueId> read;
    for (const Node& node : graph_.nodes) {
      if (Moves(node)) read.insert(node.inputs[0]);
      for (const size_t i : rules_.inputs(graph_, node)) {
        if (i < kOperands || !CanEndInFloat(node)) read.insert(node.input(i));
      }
    }
    return read;
  }

  DataType ElementOf(ValueId id) const { return graph_.value(id).type.element; }

  Status NarrowNode(Node node, const std::vector<size_t>& inputs) {
    if (!CanEndInFloat(node) || read_.contains(node.outputs[0])) {
      return Rewrite(std::move(node), inputs);
    }
    // A product that only floats are wanted of: it gives them, and adds them, as its sums are.
    for (const size_t i : inputs) {
      if (i < kOperands) ONNXD_RETURN_IF_ERROR(NarrowInput(node, i));
    }
    node.attributes.Set("output_dtype", static_cast<int64_t>(DataType::kFloat));
    graph_.nodes.push_back(std::move(node));
    return Status::Ok();
  }

  // These inputs and all outputs narrow.
  Status Rewrite(Node node, const std::vector<size_t>& inputs) {
    for (const size_t i : inputs) ONNXD_RETURN_IF_ERROR(NarrowInput(node, i));
    const std::vector<ValueId> wide = node.outputs;
    for (ValueId& output : node.outputs) {
      if (output != kNoValue) output = AddNarrow(output);
    }
    const std::vector<ValueId> narrow = node.outputs;
    graph_.nodes.push_back(std::move(node));
    for (size_t i = 0; i < wide.size(); ++i) {
      if (wide[i] == kNoValue) continue;
      AddCast(narrow[i], wide[i], DataType::kFloat);
      narrow_[wide[i]] = narrow[i];
    }
    return Status::Ok();
  }

  // The value in the narrow type: what it was made from, if that was narrow.
  Status NarrowInput(Node& node, size_t i) {
    if (node.input(i) == kNoValue) return Status::Ok();
    ValueId& wide = node.inputs[i];
    if (const auto found = narrow_.find(wide); found != narrow_.end()) {
      wide = found->second;
    } else if (graph_.IsInitializer(wide)) {
      ONNXD_ASSIGN_OR_RETURN(const ValueId narrow, NarrowConstant(wide));
      wide = narrow_[wide] = narrow;
    } else {
      const ValueId narrow = AddNarrow(wide);
      AddCast(wide, narrow, rules_.type);
      wide = narrow_[wide] = narrow;
    }
    return Status::Ok();
  }

  std::string NarrowName(ValueId wide) const { return graph_.value(wide).name + rules_.suffix; }

  ValueId AddNarrow(ValueId wide) {
    ValueType type = graph_.value(wide).type;
    type.element = rules_.type;
    return graph_.AddUniqueValue(NarrowName(wide), std::move(type));
  }

  void AddCast(ValueId from, ValueId to, DataType type) {
    Node node;
    node.name = graph_.value(to).name;
    node.op_type = "Cast";
    node.since_version = 13;
    node.inputs = {from};
    node.outputs = {to};
    node.attributes.Set("to", static_cast<int64_t>(type));
    graph_.nodes.push_back(std::move(node));
  }

  Result<ValueId> NarrowConstant(ValueId id) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor wide, graph_.initializers.at(id).Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor narrow, Tensor::Create(rules_.type, wide.shape()));
    if (rules_.round) {
      rules_.round(wide.data<float>(), narrow.mutable_raw(), wide.ElementCount());
    } else {
      ConvertElements(DataType::kFloat, wide.raw(), rules_.type, narrow.mutable_raw(),
                      wide.ElementCount());
    }
    return graph_.AddInitializer(NarrowName(id), std::move(narrow));
  }

  Graph& graph_;
  const NarrowingRules& rules_;
  const std::set<ValueId> read_;
  std::map<ValueId, ValueId> narrow_;  // values of floats and their narrow twins
};

}  // namespace

Result<bool> NarrowNodes(Graph& graph, const NarrowingRules& rules) {
  return Rewriter(graph, rules).Run();
}

}  // namespace onnxd
