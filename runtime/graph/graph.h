// The intermediate representation: values with ids, and nodes in topological order.
//
// Every value has one producer: a node, a graph input, an initializer, or (in a subgraph) a value
// of the enclosing graph that the owning node hands in. A subgraph never looks outside: what it
// captures is an explicit operand of its node (Node::captures) paired by position with
// Graph::captures, so liveness, partitioning and passes need no scopes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/attribute.h"
#include "runtime/graph/initializer.h"
#include "runtime/tensor/value.h"

namespace onnxd {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an optional operand that is absent

struct ValueInfo {
  std::string name;
  ValueType type;
};

struct Node {
  std::string name;    // may be empty or repeated
  std::string domain;  // "" is ai.onnx
  std::string op_type;
  int since_version = 0;  // the operator version that its own opset_import resolves to
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<ValueId> captures;  // values that its subgraphs use, see Graph::captures
  Attributes attributes;
  std::string provider;  // that was given the node; empty: the first that takes it

  ValueId input(size_t i) const { return i < inputs.size() ? inputs[i] : kNoValue; }
  ValueId output(size_t i) const { return i < outputs.size() ? outputs[i] : kNoValue; }
  bool Is(std::string_view op, std::string_view of_domain = "") const {
    return op_type == op && domain == of_domain;
  }
};

// "node 'conv1' (Conv)", with the domain when it is not ai.onnx.
std::string Describe(const Node& node);

// Mutable until a session plans it; one thread at a time.
class Graph {
 public:
  std::string name;
  std::vector<ValueId> inputs;   // without the initializers that old files list as inputs
  std::vector<ValueId> outputs;  // may repeat a value, or name an input or initializer
  std::vector<ValueId>
      captures;             // by position in the owning node's captures; kNoValue: unused here
  std::vector<Node> nodes;  // topological order after SortNodes
  std::map<ValueId, Initializer> initializers;

  ValueId AddValue(std::string value_name, ValueType type = {});
  // A value named like `hint` that no other value is called.
  ValueId AddUniqueValue(const std::string& hint, ValueType type = {});
  ValueId AddInitializer(const std::string& hint, Tensor tensor);
  ValueId AddInitializer(const std::string& hint, Initializer initializer);
  const ValueInfo& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  ValueInfo& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  size_t value_count() const { return values_.size(); }
  ValueId FindValue(const std::string& value_name) const;  // kNoValue when there is none

  bool IsOutput(ValueId id) const;
  bool IsInitializer(ValueId id) const { return initializers.contains(id); }

  // Replaces every use of `from` (operands, captures, graph outputs) by `to`. When `from` is a
  // graph output the two values swap names, so that the graph's signature stays.
  void ReplaceUses(ValueId from, ValueId to);

  // Orders nodes so that producers come first, stable otherwise. kInvalidArgument on a cycle.
  Status SortNodes();

  // What holds between passes: ids in range, one producer each, definitions before uses, outputs
  // produced. The message names the value. Subgraphs included.
  Status Verify() const;

 private:
  std::vector<ValueInfo> values_;
  std::unordered_map<std::string, ValueId> names_;
  int unique_ = 0;
};

// Who uses what, for passes: computed once. Values added later have no producer and no uses here;
// positions hold until the node list changes.
class GraphIndex {
 public:
  explicit GraphIndex(const Graph& graph);
  // Node index or -1.
  int producer(ValueId id) const { return Knows(id) ? producers_[static_cast<size_t>(id)] : -1; }
  // Operand and capture uses by nodes, plus one per graph output.
  int use_count(ValueId id) const { return Knows(id) ? uses_[static_cast<size_t>(id)] : 0; }
  const std::vector<int>& consumers(ValueId id) const {
    return consumers_[static_cast<size_t>(id)];
  }

 private:
  bool Knows(ValueId id) const { return static_cast<size_t>(id) < uses_.size(); }

  std::vector<int> producers_;
  std::vector<int> uses_;
  std::vector<std::vector<int>> consumers_;
};

}  // namespace onnxd
