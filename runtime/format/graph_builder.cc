#include "runtime/format/graph_builder.h"

#include <algorithm>
#include <set>

#include "runtime/base/str_cat.h"
#include "runtime/ops/op_schema.h"

namespace onnxd {
namespace {

// One graph being built, with the names it defines; `parent` is the enclosing one.
struct Scope {
  Graph* graph;
  Scope* parent;
  std::map<std::string, ValueId> names;
  std::vector<ValueId> captured_outer;  // ids in the parent's graph, paired with graph->captures
};

// The id of `name` in `scope`, capturing it from an enclosing graph if need be.
ValueId Resolve(Scope& scope, const std::string& name) {
  if (const auto found = scope.names.find(name); found != scope.names.end()) return found->second;
  if (scope.parent == nullptr) return kNoValue;
  const ValueId outer = Resolve(*scope.parent, name);
  if (outer == kNoValue) return kNoValue;
  const ValueId inner = scope.graph->AddValue(name, scope.parent->graph->value(outer).type);
  scope.names[name] = inner;
  scope.graph->captures.push_back(inner);
  scope.captured_outer.push_back(outer);
  return inner;
}

// For a model with an operator that is not there.
std::string_view WhatWouldHelp(std::string_view domain) {
  if (domain.empty()) return " (is the model newer than this onnxd?)";
  if (domain == "com.microsoft") {
    return "; it is onnxruntime's own: export the model without that fusion, or load a plug-in "
           "with it (--plugins)";
  }
  if (domain == "ai.onnx.contrib") {
    return "; it belongs to onnxruntime-extensions: serve the model without its pre- and "
           "post-processing, or load a plug-in with it (--plugins)";
  }
  return "; is the plug-in with the operators of this domain loaded (--plugins)?";
}

class Builder {
 public:
  explicit Builder(const OpsetImports& opsets) : opsets_(opsets) {}

  Status BuildGraph(ParsedGraph& parsed, Scope& scope, bool top_level) {
    Graph& graph = *scope.graph;
    graph.name = parsed.name;
    std::map<std::string, ValueType> declared;
    for (auto& info : parsed.value_infos) declared[info.name] = std::move(info.type);
    for (auto& info : parsed.outputs) {
      if (info.type.known()) declared[info.name] = info.type;
    }
    std::set<std::string> initialized;
    for (const auto& [name, initializer] : parsed.initializers) {
      if (!initialized.insert(name).second) {
        return InvalidArgument(StrCat("two initializers are called '", name, "'"));
      }
    }
    for (auto& input : parsed.inputs) {
      if (initialized.contains(input.name)) continue;  // an overridable default: constant for us
      ONNXD_ASSIGN_OR_RETURN(const ValueId id, Define(scope, input.name, std::move(input.type)));
      graph.inputs.push_back(id);
    }
    for (auto& [name, initializer] : parsed.initializers) {
      auto type = ValueType::TensorOf(initializer.type(), ToSymbolic(initializer.shape()));
      ONNXD_ASSIGN_OR_RETURN(const ValueId id, Define(scope, name, std::move(type)));
      graph.initializers[id] = std::move(initializer);
    }
    // Outputs are defined before inputs are resolved, so that the order of nodes does not matter
    // here; SortNodes establishes it.
    for (ParsedNode& node : parsed.nodes) {
      for (const std::string& output : node.outputs) {
        if (output.empty()) continue;
        const auto type = declared.find(output);
        ONNXD_RETURN_IF_ERROR(
            Define(scope, output, type == declared.end() ? ValueType{} : type->second)
                .status()
                .WithContext(StrCat("node '", node.name, "' (", node.op_type, ")")));
      }
    }
    for (ParsedNode& node : parsed.nodes) ONNXD_RETURN_IF_ERROR(BuildNode(node, scope));
    for (const auto& output : parsed.outputs) {
      const ValueId id = Resolve(scope, output.name);
      if (id == kNoValue) {
        return InvalidArgument(StrCat("graph output '", output.name, "' is produced by nothing"));
      }
      graph.outputs.push_back(id);
    }
    if (top_level && graph.outputs.empty()) return InvalidArgument("the graph has no outputs");
    return graph.SortNodes();
  }

 private:
  static Result<ValueId> Define(Scope& scope, const std::string& name, ValueType type) {
    if (name.empty()) return InvalidArgument("a graph input or initializer has no name");
    if (scope.names.contains(name)) {
      return InvalidArgument(StrCat("value '", name, "' is defined twice"));
    }
    const ValueId id = scope.graph->AddValue(name, std::move(type));
    scope.names[name] = id;
    return id;
  }

  Result<int> ResolveVersion(const ParsedNode& node) const {
    const OpsetImports& opsets = node.opsets ? *node.opsets : opsets_;
    const auto import = opsets.find(node.domain);
    const std::string op =
        node.domain.empty() ? node.op_type : StrCat(node.domain, "::", node.op_type);
    if (import == opsets.end() && node.domain.empty()) {
      return InvalidArgument(
          StrCat("node '", node.name, "' (", op, "): the model imports no opset of ai.onnx"));
    }
    // onnxruntime tolerates a missing import of other domains, and files rely on it.
    const int64_t opset = import == opsets.end() ? kNewestOpset : import->second;
    const OpSchema* schema = FindOpSchema(node.domain, node.op_type, opset);
    if (schema == nullptr) {
      return Unimplemented(StrCat("node '", node.name, "': operator ", op, " of opset ", opset,
                                  " is unknown", WhatWouldHelp(node.domain)));
    }
    return schema->since_version;
  }

  Status BuildNode(ParsedNode& parsed, Scope& scope) {
    Node node;
    node.name = std::move(parsed.name);
    node.domain = std::move(parsed.domain);
    node.op_type = std::move(parsed.op_type);
    const std::string context = Describe(node);
    {
      parsed.name = node.name;
      parsed.domain = node.domain;
      parsed.op_type = node.op_type;
      ONNXD_ASSIGN_OR_RETURN(node.since_version, ResolveVersion(parsed));
    }
    for (const std::string& input : parsed.inputs) {
      const ValueId id = input.empty() ? kNoValue : Resolve(scope, input);
      if (!input.empty() && id == kNoValue) {
        return InvalidArgument(
            StrCat(context, " uses '", input, "', which nothing before it produces"));
      }
      node.inputs.push_back(id);
    }
    for (const std::string& output : parsed.outputs) {
      node.outputs.push_back(output.empty() ? kNoValue : scope.names.at(output));
    }
    for (ParsedAttribute& attribute : parsed.attributes) {
      ONNXD_RETURN_IF_ERROR(BuildAttribute(attribute, node, scope)
                                .WithContext(StrCat(context, " attribute '", attribute.name, "'")));
    }
    scope.graph->nodes.push_back(std::move(node));
    return Status::Ok();
  }

  Status BuildAttribute(ParsedAttribute& attribute, Node& node, Scope& scope) {
    if (node.attributes.Has(attribute.name)) return InvalidArgument("it is given twice");
    if (!attribute.reference.empty()) {
      return InvalidArgument("it refers to a function's attribute outside a function");
    }
    if (auto* value = std::get_if<Attribute>(&attribute.value)) {
      node.attributes.Set(attribute.name, std::move(*value));
      return Status::Ok();
    }
    if (auto* parsed = std::get_if<ParsedGraphPtr>(&attribute.value)) {
      auto graph = std::make_shared<Graph>();
      Scope inner{graph.get(), &scope, {}, {}};
      ONNXD_RETURN_IF_ERROR(BuildGraph(**parsed, inner, false));
      PairCaptures(inner, node);
      node.attributes.Set(attribute.name, std::move(graph));
      return Status::Ok();
    }
    return Unimplemented("attributes that are lists of graphs are not supported");
  }

  // Gives the node one capture per outer value; each subgraph of the node lists its own id, or
  // kNoValue, at that position.
  static void PairCaptures(Scope& inner, Node& node) {
    std::vector<ValueId> by_position(node.captures.size(), kNoValue);
    for (size_t i = 0; i < inner.captured_outer.size(); ++i) {
      const auto known =
          std::find(node.captures.begin(), node.captures.end(), inner.captured_outer[i]);
      const auto position = static_cast<size_t>(known - node.captures.begin());
      if (known == node.captures.end()) {
        node.captures.push_back(inner.captured_outer[i]);
        by_position.push_back(kNoValue);
      }
      by_position[position] = inner.graph->captures[i];
    }
    inner.graph->captures = std::move(by_position);
    for (auto& [name, attribute] : node.attributes.entries()) {
      if (auto* sibling = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
        (*sibling)->captures.resize(node.captures.size(), kNoValue);
      }
    }
  }

  const OpsetImports& opsets_;
};

Status CheckVersions(const ParsedModel& parsed) {
  if (parsed.ir_version < 1 || parsed.ir_version > 1000) {
    return InvalidArgument(StrCat("not an ONNX model: ir_version is ", parsed.ir_version));
  }
  for (const auto& [domain, version] : parsed.opsets) {
    if (version < 1 || version > 100000) {
      return InvalidArgument(StrCat("opset_import of domain '", domain, "' has version ", version));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Model> BuildModel(ParsedModel parsed) {
  ONNXD_RETURN_IF_ERROR(CheckVersions(parsed));
  if (parsed.ir_version < 3 && parsed.opsets.empty()) parsed.opsets[""] = 1;
  Model model;
  model.ir_version = parsed.ir_version;
  model.opsets = parsed.opsets;
  model.producer_name = std::move(parsed.producer_name);
  model.producer_version = std::move(parsed.producer_version);
  model.domain = std::move(parsed.domain);
  model.model_version = parsed.model_version;
  model.metadata = std::move(parsed.metadata);
  Scope scope{&model.graph, nullptr, {}, {}};
  ONNXD_RETURN_IF_ERROR(Builder(parsed.opsets).BuildGraph(parsed.graph, scope, true));
  ONNXD_RETURN_IF_ERROR(model.graph.Verify());
  return model;
}

}  // namespace onnxd
