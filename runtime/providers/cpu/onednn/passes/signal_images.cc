#include "runtime/providers/cpu/onednn/passes/signal_images.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/graph/any_layout.h"
#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/passes/signal_rows.h"

namespace onnxd {
namespace {

constexpr int kRank = kSignalRank;

bool IsSignal(const Graph& graph, ValueId id) {
  return IsFloat(graph, id) && RankOf(graph, id) == kRank;
}

bool IsSignalConv(const Graph& graph, const Node& node) {
  if (!node.Is("Conv") && !node.Is("FusedConv", "com.microsoft")) return false;
  const auto weights = graph.initializers.find(node.input(1));
  return weights != graph.initializers.end() && weights->second.shape().rank() == kRank &&
         IsSignal(graph, node.inputs[0]) && IsSignal(graph, node.outputs[0]);
}

bool IsPool(const Node& node) {
  return node.domain.empty() && node.output(1) == kNoValue &&
         (node.op_type == "MaxPool" || node.op_type == "AveragePool" ||
          node.op_type == "GlobalAveragePool");
}

// Whose other inputs are of channels.
bool IsNormalization(const Node& node) {
  return node.Is("BatchNormalization") || node.Is("InstanceNormalization") ||
         (node.Is("GroupNormalization") && node.since_version >= 21);
}

// Rebuilds the node list in order; `images` maps signals to images of the same elements.
class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), match_(graph) {}

  Status Run() {
    std::vector<Node> nodes = graph_.nodes;  // which match_ reads
    std::vector<Node> made;
    made_ = &made;
    for (Node& node : nodes) {
      ONNXD_ASSIGN_OR_RETURN(const bool rewritten, Rewrite(node));
      if (!rewritten) Keep(std::move(node));
    }
    for (const ValueId id : graph_.outputs) MakeSignal(id);
    graph_.nodes = std::move(made);
    return Status::Ok();
  }

 private:
  bool HasImage(ValueId id) const { return images_.contains(id); }

  ValueId Image(ValueId signal) {
    const auto found = images_.find(signal);
    if (found != images_.end()) return found->second;
    const ValueId image = NewImage(signal);
    const Node* turned = match_.Producer(signal, "Transpose");
    if (turned != nullptr && turned->attributes.Ints("perm") == std::vector<int64_t>{0, 2, 1}) {
      // Its input is the image in channels-last layout already.
      const ValueId last = AddView("Unsqueeze", turned->inputs[0], 1);
      Attributes order;
      order.Set("perm", std::vector<int64_t>{0, 3, 1, 2});
      Add("Transpose", {last}, image, std::move(order));
    } else {
      Add("Unsqueeze", {signal, Axis(kRowAxis)}, image);
    }
    return image;
  }

  ValueId NewImage(ValueId signal) {
    const std::string name = graph_.value(signal).name + "_image";
    return images_[signal] = graph_.AddUniqueValue(name);
  }

  // A signal that is known as an image alone so far is made of it.
  void MakeSignal(ValueId id) {
    if (pending_.erase(id)) Add("Squeeze", {images_.at(id), Axis(kRowAxis)}, id);
  }

  ValueId Axis(int64_t axis) {
    return graph_.AddInitializer("axis", Tensor::Of<int64_t>(Shape{1}, {axis}));
  }

  ValueId AddView(const char* op_type, ValueId from, int64_t axis) {
    const std::string name = graph_.value(from).name + "_row";
    const ValueId to = graph_.AddUniqueValue(name);
    Add(op_type, {from, Axis(axis)}, to);
    return to;
  }

  void Add(const char* op_type, std::vector<ValueId> inputs, ValueId output,
           Attributes attributes = {}) {
    Node node;
    node.name = graph_.value(output).name;
    node.op_type = op_type;
    node.since_version = 13;
    node.inputs = std::move(inputs);
    node.outputs = {output};
    node.attributes = std::move(attributes);
    made_->push_back(std::move(node));
  }

  // Adds a node that computes the image of `signal`, which is made when someone needs it.
  bool Emit(Node node, ValueId signal) {
    node.outputs = {NewImage(signal)};
    pending_.insert(signal);
    made_->push_back(std::move(node));
    return true;
  }

  void Keep(Node node) {
    for (const auto* list : {&node.inputs, &node.captures}) {
      for (const ValueId id : *list) {
        if (id != kNoValue) MakeSignal(id);
      }
    }
    made_->push_back(std::move(node));
  }

  Result<bool> Rewrite(Node& node) {
    const ValueId out = node.output(0);
    if (out == kNoValue || !IsSignal(graph_, out)) return false;
    if (IsSignalConv(graph_, node)) return RewriteConv(node);
    const ValueId in = node.input(0);
    if (IsPool(node) && HasImage(in)) {
      AddRow(node);
      node.inputs[0] = Image(in);
      return Emit(std::move(node), out);
    }
    const bool is_normalization = IsNormalization(node) && node.outputs.size() == 1;
    if ((IsElementwiseInAnyLayout(node) || is_normalization) && HasImage(in)) {
      node.inputs[0] = Image(in);
      return Emit(std::move(node), out);
    }
    if (IsBinaryInAnyLayout(node)) return RewriteBinary(node);
    if (node.Is("Concat")) return RewriteConcat(node);
    if (node.Is("Split")) return RewriteSplit(node);
    if (node.Is("Transpose")) return RewriteTranspose(node);
    return false;
  }

  Result<bool> RewriteConv(Node& node) {
    const ValueId out = node.outputs[0];
    const Initializer& weights = graph_.initializers.at(node.inputs[1]);
    ONNXD_ASSIGN_OR_RETURN(const Tensor plain, weights.Materialize());
    const Shape& w = plain.shape();
    const std::string name = graph_.value(node.inputs[1]).name + "_row";
    node.inputs[1] = graph_.AddInitializer(name, plain.Reshaped(Shape{w[0], w[1], 1, w[2]}));
    node.inputs[0] = Image(node.inputs[0]);
    if (node.input(3) != kNoValue) node.inputs[3] = Image(node.inputs[3]);
    AddRow(node);
    return Emit(std::move(node), out);
  }

  // Signals that have images, and constants, whose axes get the row as well.
  Result<bool> RewriteBinary(Node& node) {
    const ValueId out = node.outputs[0];
    bool any = false;
    for (const ValueId id : node.inputs) {
      const auto constant = graph_.initializers.find(id);
      if (constant == graph_.initializers.end()) {
        if (!HasImage(id)) return false;
        any = true;
      } else if (constant->second.shape().rank() > kRank) {
        return false;
      }
    }
    if (!any) return false;
    for (ValueId& id : node.inputs) {
      if (!graph_.IsInitializer(id)) {
        id = Image(id);
        continue;
      }
      const Initializer& constant = graph_.initializers.at(id);
      std::vector<int64_t> dims = constant.shape().dims();
      if (dims.size() < 2) continue;
      dims.insert(dims.end() - 1, 1);
      ONNXD_ASSIGN_OR_RETURN(const Tensor plain, constant.Materialize());
      const std::string name = graph_.value(id).name + "_row";
      id = graph_.AddInitializer(name, plain.Reshaped(Shape(std::move(dims))));
    }
    return Emit(std::move(node), out);
  }

  bool RewriteConcat(Node& node) {
    const int64_t axis = node.attributes.Int("axis", 1);
    const bool all = std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId id) { return HasImage(id); });
    if (!all || (axis != 1 && axis != -2)) return false;
    node.attributes.Set("axis", int64_t{1});
    for (ValueId& id : node.inputs) id = Image(id);
    const ValueId out = node.outputs[0];
    return Emit(std::move(node), out);
  }

  // Of channels, as gated units have it.
  bool RewriteSplit(Node& node) {
    const int64_t axis = node.attributes.Int("axis", 0);
    if (!HasImage(node.inputs[0]) || (axis != 1 && axis != -2)) return false;
    node.attributes.Set("axis", int64_t{1});
    node.inputs[0] = Image(node.inputs[0]);
    for (ValueId& id : node.outputs) {
      if (id == kNoValue) continue;
      pending_.insert(id);
      id = NewImage(id);
    }
    made_->push_back(std::move(node));
    return true;
  }

  // What the file turns itself is the image in channels-last layout.
  bool RewriteTranspose(const Node& node) {
    if (node.attributes.Ints("perm") != std::vector<int64_t>{0, 2, 1} ||
        !HasImage(node.inputs[0])) {
      return false;
    }
    const ValueId image = Image(node.inputs[0]);
    const std::string name = graph_.value(node.outputs[0]).name + "_image";
    const ValueId last = graph_.AddUniqueValue(name);
    Attributes order;
    order.Set("perm", std::vector<int64_t>{0, 2, 3, 1});
    Add("Transpose", {image}, last, std::move(order));
    Add("Squeeze", {last, Axis(1)}, node.outputs[0]);
    return true;
  }

  Graph& graph_;
  const GraphMatcher match_;
  std::vector<Node>* made_ = nullptr;
  std::map<ValueId, ValueId> images_;
  std::set<ValueId> pending_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "signal_images"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                 [&](const Node& node) { return IsSignalConv(graph, node); });
    if (any) ONNXD_RETURN_IF_ERROR(Rewriter(graph).Run());
    return any;
  }
};

}  // namespace

const GraphPass* SignalImages() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
