#include "runtime/providers/cpu/passes/signal_rows.h"

#include <algorithm>
#include <map>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/providers/cpu/fast_kernels.h"

namespace onnxd {
namespace {

constexpr size_t kWeights = 3;

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "quantized_signals"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                 [](const Node& node) { return node.Is("QLinearConv"); });
    if (!any) return false;
    std::vector<Node> made;
    std::map<ValueId, ValueId> images;  // of signals
    bool changed = false;
    const std::vector<Node> nodes = graph.nodes;
    for (const Node& node : nodes) {
      std::optional<Node> row;
      if (node.Is("QLinearConv") && RankOf(graph, node.inputs[0]) == kSignalRank) {
        ONNXD_ASSIGN_OR_RETURN(row, RowConv(graph, node));
      }
      if (!row || !TakesQuantizedConv(graph, *row)) {
        made.push_back(node);
        continue;
      }
      NodeWriter writer(graph, made, graph.value(node.outputs[0]).name);
      const auto [image, added] = images.emplace(node.inputs[0], kNoValue);
      if (added) {
        image->second = writer.Add("Unsqueeze", {node.inputs[0], writer.Integers({kRowAxis})});
      }
      row->inputs[0] = image->second;
      const ValueId out = graph.AddUniqueValue(graph.value(node.outputs[0]).name + "_image");
      row->outputs = {out};
      made.push_back(std::move(*row));
      images[node.outputs[0]] = out;
      writer.AddTo(node.outputs[0], "Squeeze", {out, writer.Integers({kRowAxis})});
      changed = true;
    }
    if (changed) graph.nodes = std::move(made);
    return changed;
  }
};

}  // namespace

void AddRow(Node& node) {
  const auto before = [&](const char* name, int64_t value) {
    std::vector<int64_t> values = node.attributes.Ints(name);
    if (values.size() != 1) return;
    values.insert(values.begin(), value);
    node.attributes.Set(name, std::move(values));
  };
  for (const char* name : {"kernel_shape", "strides", "dilations"}) before(name, 1);
  const std::vector<int64_t> pads = node.attributes.Ints("pads");
  if (pads.size() == 2) node.attributes.Set("pads", std::vector<int64_t>{0, pads[0], 0, pads[1]});
}

Result<std::optional<Node>> RowConv(Graph& graph, const Node& conv) {
  const auto weights = graph.initializers.find(conv.input(kWeights));
  if (weights == graph.initializers.end() || weights->second.shape().rank() != kSignalRank) {
    return std::optional<Node>();
  }
  ONNXD_ASSIGN_OR_RETURN(const Tensor plain, weights->second.Materialize());
  const Shape& w = plain.shape();
  std::optional<Node> row = conv;
  row->inputs[kWeights] = graph.AddInitializer(graph.value(conv.inputs[kWeights]).name + "_row",
                                               plain.Reshaped(Shape{w[0], w[1], 1, w[2]}));
  AddRow(*row);
  return row;
}

const GraphPass* QuantizedSignals() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
