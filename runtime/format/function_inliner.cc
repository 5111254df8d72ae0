#include "runtime/format/function_inliner.h"

#include <algorithm>
#include <tuple>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr int kMaxCallDepth = 32;
constexpr int64_t kNodeCost = 1024;

using FunctionKey = std::tuple<std::string, std::string, std::string>;
using AttributeValues = std::map<std::string, const ParsedAttribute*>;
using Renames = std::map<std::string, std::string>;

class Inliner {
 public:
  Inliner(const ParsedModel& model, LoadBudget& budget) : budget_(budget) {
    for (const ParsedFunction& function : model.functions) {
      functions_[{function.domain, function.name, function.overload}] = &function;
    }
  }

  Status Expand(std::vector<ParsedNode>& nodes, int depth) {
    std::vector<ParsedNode> expanded;
    for (ParsedNode& node : nodes) {
      for (ParsedAttribute& attribute : node.attributes) {
        if (auto* graph = std::get_if<ParsedGraphPtr>(&attribute.value)) {
          ONNXD_RETURN_IF_ERROR(Expand((*graph)->nodes, depth));
        }
      }
      const auto function = functions_.find({node.domain, node.op_type, node.overload});
      if (function == functions_.end()) {
        expanded.push_back(std::move(node));
        continue;
      }
      if (depth >= kMaxCallDepth) {
        return InvalidArgument(StrCat("function '", node.domain, "::", node.op_type,
                                      "' calls itself, or calls are nested too deep"));
      }
      ONNXD_ASSIGN_OR_RETURN(auto body, Instantiate(node, *function->second));
      ONNXD_RETURN_IF_ERROR(Expand(body, depth + 1));
      for (ParsedNode& inner : body) expanded.push_back(std::move(inner));
    }
    nodes = std::move(expanded);
    return Status::Ok();
  }

 private:
  Result<std::vector<ParsedNode>> Instantiate(const ParsedNode& call,
                                              const ParsedFunction& function) {
    if (call.inputs.size() > function.inputs.size() ||
        call.outputs.size() > function.outputs.size()) {
      return InvalidArgument(StrCat("node '", call.name, "' passes ", call.inputs.size(),
                                    " inputs to function '", function.name, "', which takes ",
                                    function.inputs.size()));
    }
    const std::string prefix = StrCat(call.name, "/", function.name, "#", ++instances_, "/");
    Renames renames;
    for (size_t i = 0; i < function.inputs.size(); ++i) {
      renames[function.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : std::string();
    }
    std::vector<std::pair<std::string, std::string>> passthrough;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.outputs[i].empty()) continue;
      const auto [entry, added] = renames.emplace(function.outputs[i], call.outputs[i]);
      if (!added) passthrough.emplace_back(entry->second, call.outputs[i]);
    }
    AttributeValues attributes;
    for (const ParsedAttribute& attribute : function.attribute_defaults) {
      attributes[attribute.name] = &attribute;
    }
    for (const ParsedAttribute& attribute : call.attributes) {
      attributes[attribute.name] = &attribute;
    }
    auto opsets = std::make_shared<const OpsetImports>(function.opsets);
    ONNXD_ASSIGN_OR_RETURN(auto body,
                           CopyNodes(function.nodes, prefix, renames, attributes, opsets));
    for (const auto& [from, to] : passthrough) {  // an output that is directly an input
      ParsedNode identity;
      identity.op_type = "Identity";
      identity.inputs = {from};
      identity.outputs = {to};
      body.push_back(std::move(identity));
    }
    return body;
  }

  Result<std::vector<ParsedNode>> CopyNodes(const std::vector<ParsedNode>& nodes,
                                            const std::string& prefix, Renames& renames,
                                            const AttributeValues& attributes,
                                            const std::shared_ptr<const OpsetImports>& opsets) {
    const auto define = [&](const std::string& name) -> std::string {
      return name.empty() ? name : renames.emplace(name, prefix + name).first->second;
    };
    const auto use = [&](const std::string& name) -> std::string {
      const auto renamed = renames.find(name);
      return renamed == renames.end() ? (name.empty() ? name : prefix + name) : renamed->second;
    };
    std::vector<ParsedNode> copies;
    for (const ParsedNode& node : nodes) {
      ONNXD_RETURN_IF_ERROR(budget_.Charge(kNodeCost));
      ParsedNode copy;
      copy.name = prefix + node.name;
      copy.domain = node.domain;
      copy.op_type = node.op_type;
      copy.overload = node.overload;
      copy.opsets = opsets;
      for (const std::string& name : node.inputs) copy.inputs.push_back(use(name));
      for (const std::string& name : node.outputs) copy.outputs.push_back(define(name));
      for (const ParsedAttribute& attribute : node.attributes) {
        ParsedAttribute resolved = attribute;
        if (!attribute.reference.empty()) {
          const auto bound = attributes.find(attribute.reference);
          if (bound == attributes.end()) continue;  // absent stays absent
          resolved = *bound->second;
          resolved.name = attribute.name;
        }
        if (auto* graph = std::get_if<ParsedGraphPtr>(&resolved.value)) {
          ONNXD_ASSIGN_OR_RETURN(*graph, CopyGraph(**graph, prefix, renames, attributes, opsets));
        }
        copy.attributes.push_back(std::move(resolved));
      }
      copies.push_back(std::move(copy));
    }
    return copies;
  }

  Result<ParsedGraphPtr> CopyGraph(const ParsedGraph& graph, const std::string& prefix,
                                   Renames renames, const AttributeValues& attributes,
                                   const std::shared_ptr<const OpsetImports>& opsets) {
    auto copy = std::make_shared<ParsedGraph>();
    copy->name = graph.name;
    for (const ParsedValueInfo& input : graph.inputs) {
      renames[input.name] = prefix + input.name;
      copy->inputs.push_back({prefix + input.name, input.type});
    }
    for (const auto& [name, initializer] : graph.initializers) {
      renames[name] = prefix + name;
      copy->initializers.emplace_back(prefix + name, initializer);
    }
    ONNXD_ASSIGN_OR_RETURN(copy->nodes,
                           CopyNodes(graph.nodes, prefix, renames, attributes, opsets));
    for (const ParsedValueInfo& output : graph.outputs) {
      const auto renamed = renames.find(output.name);
      copy->outputs.push_back(
          {renamed == renames.end() ? output.name : renamed->second, output.type});
    }
    return copy;
  }

  std::map<FunctionKey, const ParsedFunction*> functions_;
  LoadBudget& budget_;
  int instances_ = 0;
};

}  // namespace

Status InlineFunctions(ParsedModel& model, LoadBudget& budget) {
  if (model.functions.empty()) return Status::Ok();
  return Inliner(model, budget).Expand(model.graph.nodes, 0);
}

}  // namespace onnxd
