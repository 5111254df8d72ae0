#include <algorithm>
#include <memory>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// Its one scanned input by rows from the first to the last, its one scanned output likewise.
bool ScansRows(const Node& node) {
  if (!node.Is("Scan") || node.since_version < 9 || node.inputs.size() != 2 ||
      node.outputs.size() != 2 || !node.captures.empty() ||
      node.attributes.Int("num_scan_inputs", 0) != 1) {
    return false;
  }
  const auto all_zero = [&](const char* name) {
    const auto numbers = node.attributes.Ints(name);
    return std::all_of(numbers.begin(), numbers.end(), [](int64_t x) { return x == 0; });
  };
  return all_zero("scan_input_axes") && all_zero("scan_output_axes") &&
         all_zero("scan_input_directions") && all_zero("scan_output_directions");
}

// The value behind nodes that hand it on.
ValueId HandedOn(const GraphMatcher& match, ValueId id) {
  while (const Node* identity = match.Producer(id, "Identity")) id = identity->inputs[0];
  return id;
}

// Whether the body hands its state [rows, columns] on as it is, and returns the sum over columns of
// the squares of what it differs by from the scanned row.
bool ReturnsDistances(const Graph& body) {
  if (body.inputs.size() != 2 || body.outputs.size() != 2) return false;
  const GraphMatcher match(body);
  const ValueId state = body.inputs[0], row = body.inputs[1];
  if (HandedOn(match, body.outputs[0]) != state) return false;
  const Node* sum = match.Producer(HandedOn(match, body.outputs[1]), "ReduceSumSquare");
  if (sum == nullptr || sum->attributes.Int("keepdims", 1) != 0) return false;
  const auto axes = AxesOfReduction(body, *sum);
  if (axes != std::vector<int64_t>{1} && axes != std::vector<int64_t>{-1}) return false;
  const Node* difference = match.Producer(sum->inputs[0], "Sub");
  return difference != nullptr && GraphMatcher::OtherOperand(*difference, state) == row;
}

// Matrices of as many columns: with one, a row would be repeated.
bool HaveEqualRows(const Graph& graph, ValueId a, ValueId b) {
  const auto &left = graph.value(a).type.shape, &right = graph.value(b).type.shape;
  const DataType type = graph.value(a).type.element;
  return left && right && left->size() == 2 && right->size() == 2 && (*left)[1].known() &&
         (*left)[1] == (*right)[1] && (type == DataType::kFloat || type == DataType::kDouble);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "scan_distances"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    std::vector<Node> made;
    const auto changed = std::erase_if(graph.nodes, [&](const Node& node) {
      if (!IsDistances(graph, node)) return false;
      AddDistances(graph, node, made);
      return true;
    });
    for (Node& node : made) graph.nodes.push_back(std::move(node));
    return TakeRoots(graph) || changed > 0;
  }

 private:
  // Sqrt of distances that nothing else reads: Euclid's.
  static bool TakeRoots(Graph& graph) {
    bool changed = false;
    const GraphIndex index(graph);
    for (Node& node : graph.nodes) {
      if (!node.Is("Sqrt") || index.use_count(node.inputs[0]) != 1) continue;
      const int producer = index.producer(node.inputs[0]);
      if (producer < 0) continue;
      const Node& squares = graph.nodes[static_cast<size_t>(producer)];
      if (!squares.Is("CDist", "com.microsoft") ||
          squares.attributes.String("metric", "sqeuclidean") != "sqeuclidean") {
        continue;
      }
      node.domain = squares.domain;
      node.op_type = squares.op_type;
      node.since_version = squares.since_version;
      node.inputs = squares.inputs;
      node.attributes.Set("metric", std::string("euclidean"));
      changed = true;
    }
    return changed;
  }

  static bool IsDistances(const Graph& graph, const Node& node) {
    if (!ScansRows(node) || !HaveEqualRows(graph, node.inputs[0], node.inputs[1])) return false;
    const std::shared_ptr<Graph> body = node.attributes.Subgraph("body");
    return body != nullptr && ReturnsDistances(*body);
  }

  static void AddDistances(Graph& graph, const Node& scan, std::vector<Node>& nodes) {
    const auto add = [&](const char* op_type, int version, std::vector<ValueId> inputs,
                         ValueId output) -> Node& {
      Node& made = nodes.emplace_back();
      made.op_type = op_type;
      made.since_version = version;
      made.name = scan.name + "_" + op_type;
      made.inputs = std::move(inputs);
      made.outputs = {output};
      return made;
    };
    if (scan.outputs[0] != kNoValue) add("Identity", 13, {scan.inputs[0]}, scan.outputs[0]);
    if (scan.outputs[1] == kNoValue) return;
    const ValueId distances = graph.AddUniqueValue(graph.value(scan.outputs[1]).name + "_turned");
    Node& cdist = add("CDist", 1, scan.inputs, distances);
    cdist.domain = "com.microsoft";
    cdist.attributes.Set("metric", std::string("sqeuclidean"));
    Node& turned = add("Transpose", 13, {distances}, scan.outputs[1]);
    turned.attributes.Set("perm", std::vector<int64_t>{1, 0});
  }
};

}  // namespace

const GraphPass* ScanDistances() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
