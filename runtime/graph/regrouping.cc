#include "runtime/graph/regrouping.h"

namespace onnxd {

bool IsRegrouping(const Node& node) {
  return node.domain.empty() && (node.op_type == "Reshape" || node.op_type == "Flatten" ||
                                 node.op_type == "Squeeze" || node.op_type == "Unsqueeze");
}

Node ReshapeNode(Graph& graph, int version, ValueId x, const std::vector<int64_t>& target,
                 const std::string& name) {
  const Tensor sizes = Tensor::Of<int64_t>(Shape{static_cast<int64_t>(target.size())},
                                           std::span<const int64_t>(target));
  Node node;
  node.op_type = "Reshape";
  node.since_version = version;
  node.inputs = {x, graph.AddInitializer(name + "_shape", sizes)};
  return node;
}

}  // namespace onnxd
