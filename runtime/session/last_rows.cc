#include "runtime/session/last_rows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/ops/shape_inference.h"

namespace onnxd {
namespace {

constexpr const char* kMicrosoft = "com.microsoft";
constexpr int kRank = 3;
constexpr size_t kRowAxis = 1;

// Operators that give each element what follows from that of their first operand, and from
// operands that are alike for all rows.
constexpr std::array kElementwise = {"Cast", "Identity", "Tanh", "Mul", "Div", "Add"};
// The same where their scale is one number.
constexpr std::array kQuantizing = {"QuantizeLinear", "DequantizeLinear"};

bool IsAlikeForRows(const Graph& graph, ValueId id) {
  const auto rank = id == kNoValue ? std::optional(0) : RankOf(graph, id);
  return rank && *rank < kRank - 1;
}

bool HasRank(const Graph& graph, ValueId id, int rank) {
  return id != kNoValue && RankOf(graph, id) == rank;
}

// A number for all elements, or none.
bool IsOneNumber(const Graph& graph, ValueId id) { return id == kNoValue || HasRank(graph, id, 0); }

// The product's rows, where each of its own follows from one of them.
ValueId RowsOfProduct(const Graph& graph, const Node& node) {
  const bool is_product = node.Is("MatMul") || node.Is("MatMulInteger");
  if (!HasRank(graph, node.input(0), kRank)) return kNoValue;
  if (node.Is("MatMulNBits", kMicrosoft)) return node.input(0);
  if (!is_product || !HasRank(graph, node.input(1), kRank - 1)) return kNoValue;
  return IsOneNumber(graph, node.input(2)) ? node.input(0) : kNoValue;
}

// The operand whose rows the node's are made of, element by element.
ValueId RowsOfElementwise(const Graph& graph, const Node& node) {
  const auto is_node = [&](const char* op) { return node.Is(op); };
  const bool has_one_scale = std::any_of(kQuantizing.begin(), kQuantizing.end(), is_node) &&
                             HasRank(graph, node.input(1), 0);
  if (!has_one_scale && std::none_of(kElementwise.begin(), kElementwise.end(), is_node)) {
    return kNoValue;
  }
  ValueId rows = kNoValue;
  for (const ValueId id : node.inputs) {
    if (IsAlikeForRows(graph, id)) continue;
    if (rows != kNoValue || !HasRank(graph, id, kRank)) return kNoValue;
    rows = id;
  }
  return rows;
}

struct Place {
  size_t product = 0;            // by position in the graph
  std::vector<ValueId> results;  // of the product, and what is made of it up to the output
};

std::optional<Place> FindPlace(const Graph& graph, ValueId output) {
  const GraphIndex index(graph);
  Place place;
  for (ValueId id = output;;) {
    const int producer = index.producer(id);
    if (producer < 0 || index.use_count(id) != 1 || !HasRank(graph, id, kRank)) return {};
    const Node& node = graph.nodes[static_cast<size_t>(producer)];
    if (node.outputs.size() != 1 || !node.captures.empty()) return {};
    place.results.push_back(id);
    place.product = static_cast<size_t>(producer);
    if (RowsOfProduct(graph, node) != kNoValue) return place;
    id = RowsOfElementwise(graph, node);
    if (id == kNoValue) return {};
  }
}

std::optional<ValueId> FindOutput(const LastRows& wanted, const Graph& graph) {
  const auto is_beside = [&](ValueId id) {
    return graph.value(id).name.starts_with(wanted.beside);
  };
  if (wanted.output.empty() || std::none_of(graph.inputs.begin(), graph.inputs.end(), is_beside)) {
    return std::nullopt;
  }
  const auto found = std::find_if(graph.outputs.begin(), graph.outputs.end(), [&](ValueId id) {
    return graph.value(id).name == wanted.output;
  });
  return found == graph.outputs.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

Status AddLastRows(const LastRows& wanted, Graph& graph) {
  const auto output = FindOutput(wanted, graph);
  if (!output || graph.FindValue(LastRows::kInput) != kNoValue) return Status::Ok();
  const auto place = FindPlace(graph, *output);
  if (!place) return Status::Ok();
  const ValueId rows = graph.nodes[place->product].inputs[0];
  if ((*graph.value(rows).type.shape)[kRowAxis].known()) return Status::Ok();

  const Dimension count = Dimension::Symbol(LastRows::kInput);
  const ValueId input =
      graph.AddValue(LastRows::kInput, ValueType::TensorOf(DataType::kInt64, SymbolicShape{count}));
  graph.inputs.push_back(input);
  std::vector<Node> nodes;
  NodeWriter writer(graph, nodes, LastRows::kInput);
  const ValueId begin = writer.Add("Neg", {writer.Add("Shape", {input})});
  const ValueId end = writer.Integers({std::numeric_limits<int64_t>::max()});
  const ValueId axis = writer.Integers({static_cast<int64_t>(kRowAxis)});
  const ValueId last = writer.Add("Slice", {rows, begin, end, axis});
  graph.nodes[place->product].inputs[0] = last;
  for (const ValueId id : place->results) {
    (*graph.value(id).type.shape)[kRowAxis] = Dimension::Unnamed();
  }
  graph.nodes.insert(graph.nodes.end(), nodes.begin(), nodes.end());
  ONNXD_RETURN_IF_ERROR(graph.SortNodes());
  return InferGraph(graph);
}

}  // namespace onnxd
