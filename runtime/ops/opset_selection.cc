#include "runtime/ops/opset_selection.h"

#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/ops/op_schema.h"

namespace onnxd {
namespace {

void Collect(const Graph& graph, std::map<std::string, std::vector<const Node*>>& nodes) {
  for (const Node& node : graph.nodes) {
    nodes[node.domain].push_back(&node);
    for (const auto& [name, attribute] : node.attributes.entries()) {
      if (const auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
        Collect(**subgraph, nodes);
      }
    }
  }
}

bool Means(const Node& node, int64_t opset) {
  const OpSchema* schema = FindOpSchema(node.domain, node.op_type, opset);
  return schema != nullptr && schema->since_version == node.since_version;
}

// The first node that means something else at `opset`; null when there is none.
const Node* Misread(const std::vector<const Node*>& nodes, int64_t opset) {
  for (const Node* node : nodes) {
    if (!Means(*node, opset)) return node;
  }
  return nullptr;
}

}  // namespace

Status SelectOpsets(const Graph& graph, std::map<std::string, int64_t>& opsets) {
  std::map<std::string, std::vector<const Node*>> nodes;
  Collect(graph, nodes);
  for (const auto& [domain, members] : nodes) {
    const int64_t present = opsets.contains(domain) ? opsets[domain] : 1;
    const Node* misread = Misread(members, present);
    opsets[domain] = present;
    for (int64_t opset = 1; misread != nullptr && opset <= kNewestOpset; ++opset) {
      if (Misread(members, opset) == nullptr) {
        opsets[domain] = opset;
        misread = nullptr;
      }
    }
    if (misread != nullptr) {
      return Unimplemented(StrCat(Describe(*misread), " has version ", misread->since_version,
                                  ", which no opset of '", domain.empty() ? "ai.onnx" : domain,
                                  "' gives it beside the model's other nodes"));
    }
  }
  return Status::Ok();
}

}  // namespace onnxd
