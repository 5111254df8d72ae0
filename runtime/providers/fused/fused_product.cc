#include <algorithm>
#include <limits>

#include "runtime/providers/fused/fused_kernels.h"
#include "runtime/providers/fused/place_function.h"
#include "runtime/providers/gpu/pointwise_expressions.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {

namespace {

// Of the whole's inputs, where what follows the product adds a row or a matrix to it, and takes
// negative results for 0 at last.
std::optional<ProductAddends> AddendsOfWhole(const Graph& graph, const FusedShapes& shapes,
                                             const Node& product, const std::vector<size_t>& after,
                                             const ProductPlan& plan) {
  const DataType type = graph.value(product.outputs[0]).type.element;
  if (!plan.addends || graph.outputs.size() != 1) return std::nullopt;
  const std::vector<size_t> inputs = InputPositions(graph, product);
  std::optional<ProductAddends> addends = plan.addends;
  if (addends->row) addends->row = inputs[*addends->row];
  if (addends->matrix) addends->matrix = inputs[*addends->matrix];
  ValueId sum = product.outputs[0];
  for (const size_t n : after) {
    const Node& node = graph.nodes[n];
    if (node.Is("Relu") && node.inputs[0] == sum && !addends->relu) {
      addends->relu = true;
      sum = node.outputs[0];
      continue;
    }
    if (!node.Is("Add") || (node.inputs[0] != sum && node.inputs[1] != sum)) return std::nullopt;
    const ValueId other = node.inputs[0] == sum ? node.inputs[1] : node.inputs[0];
    const size_t input = InputPosition(graph, other);
    const ValueId result = node.outputs[0];
    if (input == graph.inputs.size() || graph.value(other).type.element != type ||
        graph.value(result).type.element != type || shapes.of(result) != shapes.of(sum)) {
      return std::nullopt;
    }
    addends = AddendsOf(input, shapes.of(other), shapes.of(result), plan.sizes.n, *addends);
    if (!addends) return std::nullopt;
    sum = result;
  }
  return sum == graph.outputs[0] ? addends : std::nullopt;
}

// The first node behind the product, where that adds a row to it and others follow: the row's input
// of the whole.
std::optional<size_t> FirstRow(const Graph& graph, const FusedShapes& shapes, const Node& product,
                               const std::vector<size_t>& after, int64_t columns) {
  if (after.size() < 2) return std::nullopt;
  const ValueId sum = product.outputs[0];
  const Node& node = graph.nodes[after[0]];
  if (!node.Is("Add") || (node.inputs[0] == sum) == (node.inputs[1] == sum)) return std::nullopt;
  for (size_t i = 1; i < after.size(); ++i) {
    const auto& inputs = graph.nodes[after[i]].inputs;
    if (std::find(inputs.begin(), inputs.end(), sum) != inputs.end()) return std::nullopt;
  }
  for (const ValueId output : graph.outputs) {
    if (output == sum || output == node.outputs[0]) return std::nullopt;
  }
  const ValueId row = node.inputs[0] == sum ? node.inputs[1] : node.inputs[0];
  const size_t input = InputPosition(graph, row);
  const DataType type = graph.value(sum).type.element;
  if (input == graph.inputs.size() || graph.value(row).type.element != type ||
      graph.value(node.outputs[0]).type.element != type) {
    return std::nullopt;
  }
  const auto addends = AddendsOf(input, shapes.of(row), shapes.of(node.outputs[0]), columns);
  return addends && addends->row ? addends->row : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeFusedProduct(const KernelInfo& info, FusedGraph graph,
                                                 size_t product, GpuDevice& device) {
  const FusedParts parts = PartsAround(*graph, product);
  if (!parts.before.empty()) return Unimplemented("something comes before the product");
  const FusedNodeInfo node_info(info, *graph, graph->nodes[product]);
  ONNXD_ASSIGN_OR_RETURN(const ProductPlanner planner, PlannerOf(node_info.info()));
  PlaceFunction::Parts finish;
  finish.given = finish.shape = graph->nodes[product].outputs[0];
  finish.result = graph->outputs[0];
  finish.nodes = parts.after;
  for (size_t i = 1; i < graph->outputs.size(); ++i) finish.outputs.push_back(i);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Node& node = graph->nodes[product];
    ONNXD_ASSIGN_OR_RETURN(FusedShapes shapes, FusedShapes::Make(*graph, context));
    ONNXD_ASSIGN_OR_RETURN(ProductPlan plan, planner(shapes.ContextOf(node, context.threads)));
    PlaceFunction::Parts parts_of_finish = finish;
    parts_of_finish.columns = plan.sizes.n;
    ONNXD_ASSIGN_OR_RETURN(
        const PlaceFunction function,
        PlaceFunction::Make(*graph, shapes, "finish", std::move(parts_of_finish)));
    const bool wide = shapes.of(finish.shape).ElementCount() > std::numeric_limits<int32_t>::max();
    const ProductText of_product = plan.text;
    const auto with = [&](const PlaceFunction& finisher) {
      ProductText text = of_product;
      text.y = graph->value(finish.result).type.element;
      text.functions += Define("INDEX", wide ? "i64" : "u32");
      if (text.functions.find(PointwiseFunctions()) == std::string::npos) {
        text.functions += PointwiseFunctions();
      }
      text.functions += finisher.text();
      text.parameters += finisher.parameters();
      text.finished = finisher.Call("value", "at", "j");
      return text;
    };
    plan.text = with(function);
    const bool is_sum = of_product.result == "sum" && plan.addends && !plan.addends->row &&
                        !plan.addends->matrix && !plan.addends->relu;
    plan.addends = AddendsOfWhole(*graph, shapes, node, finish.nodes, plan);
    const std::vector<size_t> inputs = InputPositions(*graph, node);
    plan.a = inputs[plan.a];
    plan.b = inputs[plan.b];
    const auto filled = [fill = plan.fill, inputs](const PlaceFunction& by) {
      return [=](const KernelContext& whole, LaunchArguments& arguments) {
        fill(FusedCall(whole, inputs).context(), arguments);
        by.Fill(whole, arguments);
      };
    };
    const auto row = is_sum && !plan.addends && plan.product
                         ? FirstRow(*graph, shapes, node, finish.nodes, plan.sizes.n)
                         : std::nullopt;
    if (row) {
      PlaceFunction::Parts rest = finish;
      rest.columns = plan.sizes.n;
      rest.given = rest.shape = graph->nodes[finish.nodes[0]].outputs[0];
      rest.nodes.erase(rest.nodes.begin());
      ONNXD_ASSIGN_OR_RETURN(const PlaceFunction behind,
                             PlaceFunction::Make(*graph, shapes, "finish", std::move(rest)));
      plan.rest = ProductRest{*row, with(behind), filled(behind)};
    }
    plan.fill = filled(function);
    return PrepareProduct(device, plan, context);
  });
}

}  // namespace onnxd
