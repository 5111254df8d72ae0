#include "runtime/fusion/matmul_add.h"

#include <set>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

// The columns of a product by a constant matrix that nothing but this sum reads; 0: it is none.
int64_t ColumnsOf(const Graph& graph, const GraphMatcher& match, ValueId product) {
  const Node* matmul = match.Producer(product, "MatMul");
  if (matmul == nullptr || match.index().use_count(product) != 1) return 0;
  const auto matrix = graph.initializers.find(matmul->inputs[1]);
  const bool is_matrix = matrix != graph.initializers.end() && matrix->second.shape().rank() == 2;
  const auto rank = RankOf(graph, matmul->inputs[0]);
  return is_matrix && rank && *rank >= 2 ? matrix->second.shape()[1] : 0;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "matmul_add"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    std::set<size_t> dropped;
    for (Node& node : graph.nodes) {
      const auto operands =
          node.Is("Add") && node.since_version >= 7 ? match.BesideConstant(node) : std::nullopt;
      if (!operands) continue;
      const int64_t columns = ColumnsOf(graph, match, operands->value);
      const Initializer& row = graph.initializers.at(operands->constant);
      const bool is_row = row.shape().rank() == 1 && row.shape()[0] == columns && columns > 0 &&
                          IsFloatingPoint(row.type());
      if (!is_row) continue;
      const auto product = static_cast<size_t>(match.index().producer(operands->value));
      const Node& matmul = graph.nodes[product];
      node.inputs = {matmul.inputs[0], matmul.inputs[1], operands->constant};
      node.op_type = "MatMulAdd";
      node.domain = "onnxd";
      node.since_version = 1;
      node.attributes = Attributes();
      dropped.insert(product);
    }
    size_t position = 0;
    std::erase_if(graph.nodes, [&](const Node&) { return dropped.contains(position++); });
    return !dropped.empty();
  }
};

}  // namespace

const GraphPass* MatMulAddFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
