#include "runtime/fusion/weight_casts.h"

#include <algorithm>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

// The codes and scales that a Mul multiplies.
struct Weights {
  ValueId codes = kNoValue, scales = kNoValue;
};

// The axis along which scales of a shape of the codes' rank differ; the first where there is one
// for all, nullopt where they differ along several.
std::optional<int> ScaledAxis(const Shape& scales, const Shape& codes) {
  std::optional<int> found;
  for (int axis = 0; axis < codes.rank(); ++axis) {
    if (scales[axis] == 1) continue;
    if (found || scales[axis] != codes[axis]) return std::nullopt;
    found = axis;
  }
  return found.value_or(0);
}

bool IsNarrow(DataType type) {
  return type == DataType::kInt8 || type == DataType::kUint8 || type == DataType::kFloat16 ||
         type == DataType::kBfloat16;
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), match_(graph), nodes_(graph.nodes) {}

  Result<bool> Run() {
    bool changed = false;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (const Weights weights = WeightsOf(node); weights.codes != kNoValue) {
        GatherCodes(i, weights);
        ONNXD_RETURN_IF_ERROR(Dequantize(i, weights));
      } else if (CastsWeights(node)) {
        GatherBeforeCast(i);
        ConvertOnce(i);
      } else {
        continue;
      }
      changed = true;
    }
    if (changed) {
      nodes_.insert(nodes_.end(), made_.begin(), made_.end());
      graph_.nodes = std::move(nodes_);
    }
    return changed;
  }

 private:
  const Shape& ShapeOf(ValueId initializer) const {
    return graph_.initializers.at(initializer).shape();
  }

  Weights WeightsOf(const Node& node) const {
    if (!node.Is("Mul") || node.since_version < 7 || !IsFloat(graph_, node.outputs[0])) return {};
    const auto operands = match_.BesideConstant(node);
    if (!operands) return {};
    const Node* cast = match_.Producer(operands->value, "Cast");
    if (cast == nullptr) return {};
    const auto codes = graph_.initializers.find(cast->inputs[0]);
    if (codes == graph_.initializers.end() ||
        (codes->second.type() != DataType::kInt8 && codes->second.type() != DataType::kUint8)) {
      return {};
    }
    const Shape& scales = ShapeOf(operands->constant);
    if (scales.rank() == 0 || scales.rank() != codes->second.shape().rank() ||
        !ScaledAxis(scales, codes->second.shape())) {
      return {};
    }
    return {cast->inputs[0], operands->constant};
  }

  bool CastsWeights(const Node& node) const {
    if (!node.Is("Cast") || !IsFloat(graph_, node.outputs[0])) return false;
    const auto weights = graph_.initializers.find(node.inputs[0]);
    return weights != graph_.initializers.end() && IsNarrow(weights->second.type()) &&
           std::none_of(match_.index().consumers(node.outputs[0]).begin(),
                        match_.index().consumers(node.outputs[0]).end(), [&](int consumer) {
                          const Node& scaled = graph_.nodes[static_cast<size_t>(consumer)];
                          return WeightsOf(scaled).codes != kNoValue;
                        });
  }

  // A Gather of what the node at `position` casts becomes the cast of what it gathers.
  void GatherBeforeCast(size_t position) {
    const Node& cast = graph_.nodes[position];
    const ValueId table = cast.outputs[0];
    for (const int consumer : match_.index().consumers(table)) {
      const auto at = static_cast<size_t>(consumer);
      Node gather = graph_.nodes[at];
      if (!gather.Is("Gather") || gather.inputs[0] != table || gather.inputs[1] == table) continue;
      Node& result = nodes_[at];
      result = cast;
      result.name = gather.name;
      result.outputs = gather.outputs;
      gather.inputs[0] = cast.inputs[0];
      gather.outputs = {graph_.AddUniqueValue(graph_.value(gather.outputs[0]).name + "_narrow")};
      result.inputs = gather.outputs;
      made_.push_back(std::move(gather));
    }
  }

  // The weights as floats, made when a kernel asks for them.
  void ConvertOnce(size_t position) {
    const Initializer& narrow = graph_.initializers.at(graph_.nodes[position].inputs[0]);
    const DataType from = narrow.type();
    Node& node = nodes_[position];
    const ValueId floats = graph_.AddInitializer(
        graph_.value(node.outputs[0]).name + "_weights",
        Initializer(DataType::kFloat, narrow, [from](const void* in, void* out, int64_t count) {
          ConvertElements(from, in, DataType::kFloat, out, count);
        }));
    node.op_type = "Identity";
    node.since_version = 1;
    node.attributes = {};
    node.inputs = {floats};
  }

  // Each Gather of rows of the product at `position` becomes the product of rows. With one scale
  // for all that is what DequantizeFolding does.
  void GatherCodes(size_t position, const Weights& weights) {
    if (ShapeOf(weights.scales)[0] == 1) return;
    const ValueId table = graph_.nodes[position].outputs[0];
    for (const int consumer : match_.index().consumers(table)) {
      const Node& gather = graph_.nodes[static_cast<size_t>(consumer)];
      if (!gather.Is("Gather") || gather.inputs[0] != table || gather.inputs[1] == table ||
          gather.attributes.Int("axis", 0) != 0) {
        continue;
      }
      NodeWriter writer(graph_, made_, graph_.value(gather.outputs[0]).name);
      const ValueId codes = writer.Add("Gather", {weights.codes, gather.inputs[1]});
      Attributes to_float;
      to_float.Set("to", static_cast<int64_t>(DataType::kFloat));
      const ValueId floats = writer.Add("Cast", {codes}, to_float);
      const ValueId scales = writer.Add("Gather", {weights.scales, gather.inputs[1]});
      Node& product = nodes_[static_cast<size_t>(consumer)];
      product.op_type = "Mul";
      product.since_version = 13;
      product.attributes = {};
      product.inputs = {floats, scales};
    }
  }

  Status Dequantize(size_t position, const Weights& weights) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor scales,
                           graph_.initializers.at(weights.scales).Materialize());
    const int axis = *ScaledAxis(scales.shape(), ShapeOf(weights.codes));
    const bool is_one = scales.ElementCount() == 1;
    Node& node = nodes_[position];
    node.op_type = "DequantizeLinear";
    node.since_version = 13;
    node.attributes.Set("axis", static_cast<int64_t>(axis));
    node.inputs = {
        weights.codes,
        graph_.AddInitializer(graph_.value(weights.scales).name + "_row",
                              scales.Reshaped(is_one ? Shape{} : Shape{scales.ElementCount()}))};
    return Status::Ok();
  }

  Graph& graph_;
  GraphMatcher match_;
  std::vector<Node> nodes_, made_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "weight_casts"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    // Before nodes are copied, of which some have a list as long as the model's file.
    const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      return node.Is("Cast") && graph.IsInitializer(node.inputs[0]);
    });
    return any ? Rewriter(graph).Run() : Result<bool>(false);
  }
};

}  // namespace

const GraphPass* WeightCasts() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
