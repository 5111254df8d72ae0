#include "runtime/fusion/retyping.h"

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
  Rewriter(Graph& graph, const RetypingRules& rules)
      : graph_(graph), rules_(rules), read_(ReadRetyped()) {
    for (const Node& node : graph.nodes) {
      if (node.Is("Cast") && ElementOf(node.inputs[0]) == rules_.to &&
          ElementOf(node.outputs[0]) == rules_.from) {
        twins_[node.outputs[0]] = node.inputs[0];
      }
    }
  }

  bool Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    bool changed = false;
    for (Node& node : nodes) {
      const std::vector<size_t> inputs = rules_.inputs(graph_, node);
      if (!inputs.empty()) {
        RetypeNode(std::move(node), inputs);
        changed = true;
      } else if (Moves(node) && twins_.contains(node.inputs[0])) {
        Rewrite(std::move(node), {0});
        changed = true;
      } else {
        if (node.Is("Shape") && twins_.contains(node.inputs[0])) {
          node.inputs[0] = twins_[node.inputs[0]];  // which spares a Cast that nobody reads
        } else if (node.Is("Cast") && twins_.contains(node.inputs[0]) &&
                   ElementOf(node.outputs[0]) == rules_.to) {
          node.inputs[0] = twins_[node.inputs[0]];
          node.op_type = "Identity";
          node.attributes = {};
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

  // What some node will want in the new type. What is added to a product that may end in float
  // is not among it.
  std::set<ValueId> ReadRetyped() const {
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

  void RetypeNode(Node node, const std::vector<size_t>& inputs) {
    if (!CanEndInFloat(node) || read_.contains(node.outputs[0])) {
      return Rewrite(std::move(node), inputs);
    }
    // A product that only floats are wanted of: it gives them, and adds them, as its sums are.
    for (const size_t i : inputs) {
      if (i < kOperands) RetypeInput(node, i);
    }
    node.attributes.Set("output_dtype", static_cast<int64_t>(DataType::kFloat));
    graph_.nodes.push_back(std::move(node));
  }

  // These inputs and all outputs that were of the old type.
  void Rewrite(Node node, const std::vector<size_t>& inputs) {
    for (const size_t i : inputs) RetypeInput(node, i);
    const std::vector<ValueId> old = node.outputs;
    for (ValueId& output : node.outputs) {
      if (output != kNoValue && ElementOf(output) == rules_.from) output = AddTwin(output);
    }
    const std::vector<ValueId> made = node.outputs;
    graph_.nodes.push_back(std::move(node));
    for (size_t i = 0; i < old.size(); ++i) {
      if (made[i] == old[i]) continue;
      AddCast(made[i], old[i], rules_.from);
      twins_[old[i]] = made[i];
    }
  }

  // The value in the new type: what it was made from, if that was of it.
  void RetypeInput(Node& node, size_t i) {
    if (node.input(i) == kNoValue) return;
    ValueId& value = node.inputs[i];
    if (const auto found = twins_.find(value); found != twins_.end()) {
      value = found->second;
    } else if (graph_.IsInitializer(value)) {
      const ValueId twin = RetypeConstant(value);
      value = twins_[value] = twin;
    } else {
      const ValueId twin = AddTwin(value);
      AddCast(value, twin, rules_.to);
      value = twins_[value] = twin;
    }
  }

  std::string TwinName(ValueId id) const { return graph_.value(id).name + rules_.suffix; }

  ValueId AddTwin(ValueId id) {
    ValueType type = graph_.value(id).type;
    type.element = rules_.to;
    return graph_.AddUniqueValue(TwinName(id), std::move(type));
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

  ValueId RetypeConstant(ValueId id) {
    Initializer::Conversion convert = rules_.convert;
    if (!convert) {
      convert = [from = rules_.from, to = rules_.to](const void* in, void* out, int64_t count) {
        ConvertElements(from, in, to, out, count);
      };
    }
    return graph_.AddInitializer(
        TwinName(id), Initializer(rules_.to, graph_.initializers.at(id), std::move(convert)));
  }

  Graph& graph_;
  const RetypingRules& rules_;
  const std::set<ValueId> read_;
  std::map<ValueId, ValueId> twins_;  // the same value in the new type
};

}  // namespace

bool RetypeNodes(Graph& graph, const RetypingRules& rules) { return Rewriter(graph, rules).Run(); }

}  // namespace onnxd
