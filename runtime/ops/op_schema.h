// OpSchema: what an operator version accepts. Source: the registry of ONNX 1.23 in development
// (onnx_operators.inc, generated once) and the documents of onnxruntime's contrib operators
// (contrib_operators.tsv, from which the build tree's table is generated and committed beside it).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// The opset that a node of a domain without import is read with.
inline constexpr int64_t kNewestOpset = 28;

// Types by DataType number, a bit each.
struct TypeSet {
  uint32_t tensor;
  uint32_t sequence;  // of tensors
  uint32_t optional;  // of tensors
  bool other;         // maps, sequences of maps, nested containers: not told apart

  bool Contains(const ValueType& type) const;
};

enum class OperandKind : uint8_t { kSingle, kOptional, kVariadic };

// One formal input or output. Operands with the same `variable` (>= 0) have the same type.
struct OperandRow {
  const char* name;
  OperandKind kind;
  int variable;
  int type_set;
};

struct AttributeSchema {
  const char* name;
  const char* kind;  // as AttributeKindName spells it
  bool required;
};

struct SchemaRow {
  const char* domain;
  const char* name;
  int since_version;
  bool deprecated;
  int min_inputs, max_inputs, min_outputs, max_outputs;
  int inputs_begin, input_rows, outputs_begin, output_rows, attributes_begin, attribute_rows;
};

// A row with its tables at hand. Constant data of the program.
struct OpSchema {
  std::string_view domain;
  std::string_view name;
  int since_version;
  bool deprecated;
  int min_inputs, max_inputs, min_outputs, max_outputs;
  const OperandRow* inputs;
  int input_rows;
  const OperandRow* outputs;
  int output_rows;
  const AttributeSchema* attributes;
  int attribute_rows;
  const TypeSet* type_sets;

  // The formal operand of actual operand `i`; the variadic one repeats. Null beyond the last.
  const OperandRow* Input(int i) const;
  const OperandRow* Output(int i) const;
};

// The schema that `opset` of `domain` means by `op`: the newest since_version not above it; the
// standard's and the contrib operators first, then those of custom_operators.h. Null when there is
// none.
const OpSchema* FindOpSchema(std::string_view domain, std::string_view op, int64_t opset);
// Without the custom ones.
const OpSchema* FindStandardSchema(std::string_view domain, std::string_view op, int64_t opset);

// Checks arity, attributes and (where known) input types of `node` against its schema.
// kInvalidArgument names node, operand or attribute, what was expected and what came.
Status CheckNode(const Graph& graph, const Node& node);

// CheckNode over the graph and its subgraphs.
Status CheckGraph(const Graph& graph);

}  // namespace onnxd
