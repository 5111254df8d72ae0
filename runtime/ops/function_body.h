// FunctionBody: an operator said in terms of others, as ONNX's operators with a function body are.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// Collects the nodes that stand for one node of a graph. Operators are written in the newest
// version that this build knows, so bodies follow that version's attributes and inputs.
class FunctionBody {
 public:
  // A value of the body.
  struct Operand {
    int index = -1;
    bool absent() const { return index < 0; }
  };

  // Both must outlive the body. `inputs` holds a type per input of the node, as far as it is known.
  FunctionBody(const Node& node, std::span<const ValueType> inputs);

  const Node& node() const { return node_; }
  const Attributes& attributes() const { return node_.attributes; }
  bool HasInput(size_t i) const { return node_.input(i) != kNoValue; }
  bool HasOutput(size_t i) const { return node_.output(i) != kNoValue; }
  // kUndefined when it is not known.
  DataType InputType(size_t i) const { return i < types_.size() ? types_[i].element : DataType{}; }
  // -1 when it is not known.
  int InputRank(size_t i) const;
  int64_t InputDim(size_t i, int axis) const;

  // Absent for an input that the node leaves out.
  Operand Input(size_t i) const;
  Operand Constant(Tensor tensor);
  Operand Integers(const std::vector<int64_t>& values);  // of rank 1
  // A scalar of the type; kFloat when that is not known.
  Operand Number(double value, DataType type);

  // The first output of a new node.
  Operand Call(const std::string& op, std::initializer_list<Operand> inputs,
               Attributes attributes = {}, const std::string& domain = "");
  // All `outputs` of a new node.
  std::vector<Operand> CallMany(const std::string& op, const std::vector<Operand>& inputs,
                                size_t outputs, Attributes attributes = {},
                                const std::string& domain = "");
  Operand Cast(Operand x, DataType to);

  // The node's output i.
  void Return(size_t i, Operand result);

  // Whether `test` holds for every node so far; their operands are not set.
  bool All(FunctionRef<bool(const Node&)> test) const;

  // Puts the body in the place of graph.nodes[position], which must be the node; returns how many
  // nodes stand there now. kInternal when an output has no result.
  Result<size_t> Replace(Graph& graph, size_t position) const;

 private:
  struct Step {
    Node node;                         // without operands
    std::vector<int> inputs, outputs;  // local values, -1: absent
  };

  Operand Local() { return Operand{locals_++}; }

  const Node& node_;
  std::span<const ValueType> types_;
  int locals_;  // the node's inputs come first
  std::vector<std::pair<int, Tensor>> constants_;
  std::vector<Step> steps_;
  std::vector<int> results_;
};

// {"axis", 1}, ... as a node's attributes.
Attributes MakeAttributes(std::initializer_list<std::pair<const char*, Attribute>> entries);

}  // namespace onnxd
