#include "runtime/ops/op_schema.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/ops/custom_operators.h"

namespace onnxd {
namespace {

#include "runtime/ops/contrib_operators.inc"
#include "runtime/ops/onnx_operators.inc"

template <size_t N>
void AppendSchemas(const SchemaRow (&rows)[N], const OperandRow* operands,
                   const AttributeSchema* attributes, const TypeSet* type_sets,
                   std::vector<OpSchema>& out) {
  for (const SchemaRow& row : rows) {
    out.push_back({row.domain, row.name, row.since_version, row.deprecated, row.min_inputs,
                   row.max_inputs, row.min_outputs, row.max_outputs, operands + row.inputs_begin,
                   row.input_rows, operands + row.outputs_begin, row.output_rows,
                   attributes + row.attributes_begin, row.attribute_rows, type_sets});
  }
}

bool Before(const OpSchema& a, const OpSchema& b) {
  return std::tie(a.domain, a.name, a.since_version) < std::tie(b.domain, b.name, b.since_version);
}

const std::vector<OpSchema>& Schemas() {
  static const std::vector<OpSchema> schemas = [] {
    std::vector<OpSchema> all;
    all.reserve(std::size(kOnnxSchemas) + std::size(kContribSchemas));
    AppendSchemas(kOnnxSchemas, kOnnxOperands, kOnnxAttributes, kOnnxTypeSets, all);
    AppendSchemas(kContribSchemas, kContribOperands, kContribAttributes, kContribTypeSets, all);
    std::sort(all.begin(), all.end(), Before);
    return all;
  }();
  return schemas;
}

const OperandRow* Operand(const OperandRow* rows, int count, int i) {
  if (i < count) return rows + i;
  if (count > 0 && rows[count - 1].kind == OperandKind::kVariadic) return rows + count - 1;
  return nullptr;
}

bool HasGraphAttribute(const OpSchema& schema) {
  return std::any_of(
      schema.attributes, schema.attributes + schema.attribute_rows,
      [](const AttributeSchema& a) { return std::string_view(a.kind).ends_with("GRAPH"); });
}

Status CheckArity(const Node& node, const OpSchema& schema) {
  const auto check = [&](size_t got, int low, int high, std::string_view what) -> Status {
    if (static_cast<int64_t>(got) >= low && static_cast<int64_t>(got) <= high) return Status::Ok();
    return InvalidArgument(StrCat(Describe(node), " has ", got, " ", what, ", version ",
                                  schema.since_version, " takes ", low, " to ",
                                  high == 2147483647 ? std::string("any number") : StrCat(high)));
  };
  ONNXD_RETURN_IF_ERROR(check(node.inputs.size(), schema.min_inputs, schema.max_inputs, "inputs"));
  ONNXD_RETURN_IF_ERROR(
      check(node.outputs.size(), schema.min_outputs, schema.max_outputs, "outputs"));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const OperandRow* row = schema.Input(static_cast<int>(i));
    if (node.inputs[i] == kNoValue && row != nullptr && row->kind != OperandKind::kOptional) {
      return InvalidArgument(
          StrCat(Describe(node), " leaves out input '", row->name, "', which is required"));
    }
  }
  return Status::Ok();
}

Status CheckAttributes(const Node& node, const OpSchema& schema) {
  const AttributeSchema* end = schema.attributes + schema.attribute_rows;
  for (const auto& entry : node.attributes.entries()) {
    const std::string& name = entry.first;
    const Attribute& attribute = entry.second;
    const AttributeSchema* row = std::find_if(
        schema.attributes, end, [&](const AttributeSchema& a) { return name == a.name; });
    if (row == end) {
      return InvalidArgument(StrCat(Describe(node), " has attribute '", name, "', which version ",
                                    schema.since_version, " does not know"));
    }
    const std::string_view kind = AttributeKindName(attribute);
    const std::string_view wanted =
        std::string_view(row->kind) == "SPARSE_TENSOR" ? "TENSOR" : row->kind;
    if (kind != wanted) {
      return InvalidArgument(
          StrCat(Describe(node), " attribute '", name, "' is ", kind, ", expected ", row->kind));
    }
  }
  for (const AttributeSchema* row = schema.attributes; row != end; ++row) {
    if (row->required && !node.attributes.Has(row->name)) {
      return InvalidArgument(
          StrCat(Describe(node), " lacks the required attribute '", row->name, "'"));
    }
  }
  return Status::Ok();
}

Status CheckInputTypes(const Graph& graph, const Node& node, const OpSchema& schema) {
  constexpr int kMaxVariables = 32;
  std::array<const ValueInfo*, kMaxVariables> bound{};
  const bool heterogeneous = HasGraphAttribute(schema);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const OperandRow* row = schema.Input(static_cast<int>(i));
    const ValueInfo& info = graph.value(node.inputs[i]);
    if (row == nullptr || !info.type.known()) continue;
    if (!schema.type_sets[row->type_set].Contains(info.type)) {
      return InvalidArgument(StrCat(Describe(node), " input '", row->name, "' ('", info.name,
                                    "') has type ", ToString(info.type), ", which version ",
                                    schema.since_version, " does not take"));
    }
    if (row->variable < 0 || row->variable >= kMaxVariables || heterogeneous) continue;
    const ValueInfo*& first = bound[static_cast<size_t>(row->variable)];
    if (first == nullptr) first = &info;
    if (first->type.kind == info.type.kind && first->type.element != info.type.element) {
      return InvalidArgument(StrCat(Describe(node), " mixes types: '", first->name, "' is ",
                                    ToString(first->type), ", '", info.name, "' is ",
                                    ToString(info.type)));
    }
  }
  return Status::Ok();
}

}  // namespace

bool TypeSet::Contains(const ValueType& type) const {
  const auto bit = [](const ValueType& t) { return 1u << static_cast<int>(t.element); };
  switch (type.kind) {
    case ValueType::Kind::kTensor:
      return (tensor & bit(type)) != 0;
    case ValueType::Kind::kSequence:
      return type.inner && type.inner->is_tensor() ? other || (sequence & bit(*type.inner)) != 0
                                                   : other;
    case ValueType::Kind::kOptional:
      return type.inner && type.inner->is_tensor() ? other || (optional & bit(*type.inner)) != 0
                                                   : other;
    default:
      return other;
  }
}

const OperandRow* OpSchema::Input(int i) const { return Operand(inputs, input_rows, i); }
const OperandRow* OpSchema::Output(int i) const { return Operand(outputs, output_rows, i); }

const OpSchema* FindOpSchema(std::string_view domain, std::string_view op, int64_t opset) {
  const OpSchema* standard = FindStandardSchema(domain, op, opset);
  return standard != nullptr ? standard : FindCustomSchema(domain, op, opset);
}

const OpSchema* FindStandardSchema(std::string_view domain, std::string_view op, int64_t opset) {
  // All versions of the operators of one name, which may be of several domains.
  static const auto by_name = [] {
    std::unordered_map<std::string_view, std::vector<const OpSchema*>> all;
    for (const OpSchema& schema : Schemas()) all[schema.name].push_back(&schema);
    return all;
  }();
  const auto named = by_name.find(op);
  if (named == by_name.end()) return nullptr;
  const OpSchema* newest = nullptr;
  for (const OpSchema* schema : named->second) {  // versions rise
    if (schema->domain == domain && schema->since_version <= opset) newest = schema;
  }
  return newest;
}

Status CheckNode(const Graph& graph, const Node& node) {
  const OpSchema* schema = FindOpSchema(node.domain, node.op_type, node.since_version);
  if (schema == nullptr) return Unimplemented(StrCat(Describe(node), ": unknown operator"));
  ONNXD_RETURN_IF_ERROR(CheckArity(node, *schema));
  ONNXD_RETURN_IF_ERROR(CheckAttributes(node, *schema));
  return CheckInputTypes(graph, node, *schema);
}

Status CheckGraph(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    ONNXD_RETURN_IF_ERROR(CheckNode(graph, node));
    for (const auto& [name, attribute] : node.attributes.entries()) {
      if (const auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
        ONNXD_RETURN_IF_ERROR(CheckGraph(**subgraph).WithContext(Describe(node)));
      }
    }
  }
  return Status::Ok();
}

}  // namespace onnxd
