#include "runtime/graph/graph_text.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMaxList = 16;  // entries shown of a list

template <typename T>
std::string ListText(const std::vector<T>& list) {
  std::string text;
  for (size_t i = 0; i < list.size() && i < kMaxList; ++i) {
    text += StrCat(i == 0 ? "" : ",", list[i]);
  }
  return StrCat("[", text, list.size() > kMaxList ? ",..." : "", "]");
}

std::string AttributeText(const Attribute& attribute) {
  struct Visitor {
    std::string operator()(float number) const { return StrCat(number); }
    std::string operator()(int64_t number) const { return StrCat(number); }
    std::string operator()(const std::string& text) const { return StrCat("'", text, "'"); }
    std::string operator()(const Initializer& tensor) const {
      return StrCat(DataTypeName(tensor.type()), tensor.shape().ToString());
    }
    std::string operator()(const std::shared_ptr<Graph>&) const { return "{...}"; }
    std::string operator()(const std::vector<float>& list) const { return ListText(list); }
    std::string operator()(const std::vector<int64_t>& list) const { return ListText(list); }
    std::string operator()(const std::vector<std::string>& list) const { return ListText(list); }
    std::string operator()(const std::vector<Initializer>& list) const {
      return StrCat(list.size(), " tensors");
    }
    std::string operator()(const std::vector<std::shared_ptr<Graph>>& list) const {
      return StrCat(list.size(), " graphs");
    }
    std::string operator()(const ValueType& type) const { return ToString(type); }
    std::string operator()(const FusedGraph&) const { return "{...}"; }
  };
  return std::visit(Visitor{}, attribute);
}

std::string OperandText(const Graph& graph, ValueId id) {
  return id == kNoValue ? "" : graph.value(id).name;
}

void Append(const Graph& graph, const std::string& indent, std::string& text) {
  for (const Node& node : graph.nodes) {
    std::string outputs, inputs, attributes;
    for (const ValueId id : node.outputs) {
      outputs += outputs.empty() ? "" : ", ";
      outputs +=
          id == kNoValue ? "_" : StrCat(graph.value(id).name, ": ", ToString(graph.value(id).type));
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs += StrCat(i == 0 ? "" : ", ", OperandText(graph, node.inputs[i]));
    }
    for (const auto& [name, attribute] : node.attributes.entries()) {
      attributes += StrCat(" ", name, "=", AttributeText(attribute));
    }
    text += StrCat(indent, outputs, " = ", node.domain.empty() ? "" : StrCat(node.domain, "::"),
                   node.op_type, "(", inputs, ")", attributes,
                   node.name.empty() ? "" : StrCat("  # ", node.name), "\n");
    for (const auto& [name, attribute] : node.attributes.entries()) {
      const Graph* inner = nullptr;
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) inner = body->get();
      if (const auto* fused = std::get_if<FusedGraph>(&attribute)) inner = fused->get();
      if (inner == nullptr) continue;
      text += StrCat(indent, "  ", name, ":\n");
      Append(*inner, indent + "    ", text);
    }
  }
}

}  // namespace

std::string GraphText(const Graph& graph) {
  std::string text;
  for (const ValueId id : graph.inputs) {
    text += StrCat("input ", graph.value(id).name, ": ", ToString(graph.value(id).type), "\n");
  }
  Append(graph, "", text);
  for (const ValueId id : graph.outputs) {
    text += StrCat("output ", graph.value(id).name, ": ", ToString(graph.value(id).type), "\n");
  }
  return text;
}

}  // namespace onnxd
