// Type and shape inference: the one place that says what comes out of an operator.
//
// The same function serves the loader, where dimensions may be symbols or unknown, and the planner,
// where all inputs are known: there its answer is the shape that kernels compute into.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/ops/shape_values.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// The view an inference function has of one node.
class InferenceContext {
 public:
  InferenceContext(const Node& node, std::span<const ValueType> inputs,
                   std::span<const Tensor* const> known,
                   std::span<const ShapeValues* const> values);

  const Node& node() const { return node_; }
  const Attributes& attributes() const { return node_.attributes; }
  int version() const { return node_.since_version; }
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }

  bool HasInput(size_t i) const { return i < inputs_.size() && node_.inputs[i] != kNoValue; }
  // kUnknown when absent.
  const ValueType& input(size_t i) const;
  // Null when absent or the rank is unknown.
  const SymbolicShape* shape(size_t i) const;
  // The elements, when they are constant or were computed while planning. Null otherwise.
  const Tensor* known(size_t i) const;
  // Elements of a known int32 or int64 tensor.
  std::optional<std::vector<int64_t>> known_ints(size_t i) const;
  // The same, some of them perhaps symbols or unknown.
  std::optional<std::vector<ShapeValue>> shape_values(size_t i) const;

  void SetType(size_t i, ValueType type);
  void SetElement(size_t i, DataType element);
  void SetShape(size_t i, SymbolicShape shape);
  std::vector<ValueType>& outputs() { return outputs_; }

  // kInvalidArgument with the node named.
  Status Fail(std::string_view why) const;

 private:
  const Node& node_;
  std::span<const ValueType> inputs_;
  std::span<const Tensor* const> known_;
  std::span<const ShapeValues* const> values_;
  std::vector<ValueType> outputs_;
};

using InferenceFunction = Status (*)(InferenceContext&);

// Types of the outputs of `node`. `inputs` and `known` have one entry per node.inputs (kUnknown and
// null for absent ones), `values` has, too, or is empty. Element types that follow from the
// schema's constraints are set even for operators without a shape rule. Errors name the node.
Result<std::vector<ValueType>> InferNode(const Node& node, std::span<const ValueType> inputs,
                                         std::span<const Tensor* const> known,
                                         std::span<const ShapeValues* const> values = {});

// Writes inferred types into the graph's values, subgraphs included; declared types of values are
// kept where inference knows less and refused where element types contradict it.
// `computed`, when given, gets the int64 tensors that nodes of this graph (not of its subgraphs)
// compute from shapes and that are known already.
Status InferGraph(Graph& graph, std::map<ValueId, Tensor>* computed = nullptr);

// Elements of an int32 or int64 tensor as int64; nullopt for other types.
std::optional<std::vector<int64_t>> IntElements(const Tensor& tensor);

}  // namespace onnxd
