// What passes ask while they follow a pattern from its last node back to its inputs.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// The one element of a floating-point initializer, whatever its rank; nullopt for anything else.
std::optional<float> ScalarConstant(const Graph& graph, ValueId id);
// The elements of an int32 or int64 initializer, whatever its rank; nullopt for anything else.
std::optional<std::vector<int64_t>> IntsConstant(const Graph& graph, ValueId id);

// The axes of a reduction, as its version has them: an attribute or a constant input. Nullopt where
// they are computed; empty where none are given.
std::optional<std::vector<int64_t>> AxesOfReduction(const Graph& graph, const Node& node);

// What a Clip node, of any version, clips to; nullopt where a bound is computed, is NaN, or the lower
// one is above the upper one, which all elements are then.
struct Bounds {
  float low, high;
};
std::optional<Bounds> ClipBounds(const Graph& graph, const Node& node);

// The rank of a tensor, nullopt when it is not known.
std::optional<int> RankOf(const Graph& graph, ValueId id);
bool IsFloat(const Graph& graph, ValueId id);
// Known to be equal, by number or by symbol.
bool SameKnownExtent(const Dimension& a, const Dimension& b);
// The same of every dimension.
bool SameKnownShape(const Graph& graph, ValueId a, ValueId b);

// What a Reshape of a tensor of shape `from` is told for `to`, with 0 for extents that stay and -1
// for one that is not known; nullopt where more are not, or one is 0.
std::optional<std::vector<int64_t>> ReshapeTarget(const SymbolicShape& from,
                                                  const SymbolicShape& to);

// The axes of a Transpose node's input in its output's order; nullopt where they are not known, or
// wrong.
std::optional<std::vector<int64_t>> TransposeOrder(const Graph& graph, const Node& node);

// Steps from values to the ai.onnx nodes that produce them. Valid while the node list keeps its
// positions; nodes may be rewritten in place meanwhile.
class GraphMatcher {
 public:
  explicit GraphMatcher(const Graph& graph) : graph_(graph), index_(graph) {}

  // The producer, when it is an ai.onnx operator of that type; null otherwise.
  const Node* Producer(ValueId id, std::string_view op_type) const;

  struct Operands {
    ValueId value;     // the operand that is computed
    ValueId constant;  // the other one, an initializer
  };
  // For a node with two operands, one an initializer, either side.
  std::optional<Operands> BesideConstant(const Node& node) const;

  // The operand of an ai.onnx `op_type` node producing `id` whose other operand is a scalar within
  // a relative 1e-3 of `expected` that cannot raise the rank. kNoValue when there is no such node.
  ValueId BesideScalar(ValueId id, std::string_view op_type, float expected) const;
  // The same, with any scalar.
  struct Scaled {
    ValueId value = kNoValue;
    float scalar = 0;
  };
  std::optional<Scaled> BesideAnyScalar(ValueId id, std::string_view op_type) const;

  // For a node with two operands of which one is `one`: the other. kNoValue when neither is.
  static ValueId OtherOperand(const Node& node, ValueId one);

  const GraphIndex& index() const { return index_; }

 private:
  const Graph& graph_;
  GraphIndex index_;
};

}  // namespace onnxd
