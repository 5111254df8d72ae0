#include "runtime/fusion/channels_last.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "runtime/fusion/channel_order.h"
#include "runtime/graph/any_layout.h"
#include "runtime/graph/channel_affine.h"
#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"

namespace onnxd {
namespace {

const std::vector<int64_t> kToLast = {0, 2, 3, 1};
const std::vector<int64_t> kToFirst = {0, 3, 1, 2};

bool HasNegativePad(const Node& node) {
  // oneDNN's padding on the far side may be negative, the near one not.
  const auto pads = node.attributes.Ints("pads");
  return std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad < 0; });
}

bool HasFilters(const Graph& graph, const Node& node) {
  if (!node.Is("Conv") && !node.Is("FusedConv", "com.microsoft")) return false;
  const auto weights = graph.initializers.find(node.input(1));
  return weights != graph.initializers.end() && weights->second.shape().rank() == 4 &&
         !HasNegativePad(node);
}

// Operators of com.microsoft on one tensor of bytes and two formats.
bool IsByteElementwise(const Node& node) {
  return node.Is("QLinearSigmoid", "com.microsoft") || node.Is("QLinearLeakyRelu", "com.microsoft");
}

bool IsQuantization(const Node& node) {
  return node.domain.empty() &&
         (node.op_type == "QuantizeLinear" || node.op_type == "DequantizeLinear") &&
         node.attributes.Int("block_size", 0) == 0;
}

bool IsReduction(const Node& node) {
  static const std::set<std::string> reductions = {"ReduceMean", "ReduceSum",      "ReduceMax",
                                                   "ReduceMin",  "ReduceL1",       "ReduceL2",
                                                   "ReduceProd", "ReduceSumSquare"};
  return node.domain.empty() && reductions.contains(node.op_type);
}

bool IsPool(const Node& node) {
  return node.domain.empty() &&
         (node.op_type == "MaxPool" || node.op_type == "AveragePool" ||
          node.op_type == "GlobalAveragePool") &&
         node.output(1) == kNoValue;
}

// Extents of a convolution's image in patches that it takes one by one.
struct Patches {
  int64_t channels, down, across, height, width;
};

// Rebuilds the node list in order; `last` maps plain values to their channels-last twins.
class Rewriter {
 public:
  Rewriter(Graph& graph, const ChannelsLastRules& rules) : graph_(graph), rules_(rules) {}

  void Run() {
    FindImagesRead();
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      for (auto* list : {&node.inputs, &node.captures}) {
        for (ValueId& id : *list) {
          if (const auto found = replaced_.find(id); found != replaced_.end()) id = found->second;
        }
      }
      if (!Rewrite(node)) Keep(std::move(node));
    }
    for (const ValueId id : graph_.outputs) MakePlain(id);
  }

 private:
  bool HasTwin(ValueId id) const { return last_.contains(id); }

  // What convolutions and operators that carry the layout read.
  void FindImagesRead() {
    for (const Node& node : graph_.nodes) {
      const bool convolves = HasFilters(graph_, node) && rules_.conv(graph_, node);
      const bool carries = IsPool(node) || IsElementwiseInAnyLayout(node) ||
                           IsBinaryInAnyLayout(node) || node.Is("Concat");
      if (convolves || carries) images_read_.insert(node.inputs.begin(), node.inputs.end());
    }
  }

  // Four axes of a type that the layout is for.
  bool IsImage(ValueId id) const {
    if (id == kNoValue) return false;
    const ValueType& type = graph_.value(id).type;
    return type.is_tensor() && type.shape && type.shape->size() == 4 &&
           std::find(rules_.types.begin(), rules_.types.end(), type.element) != rules_.types.end();
  }

  // One pixel of each image, as a squeeze of it is: few channels cost nothing there.
  bool IsPixel(ValueId id) const {
    const SymbolicShape& shape = *graph_.value(id).type.shape;
    return shape[2].value == 1 && shape[3].value == 1;
  }

  // The groups of an InstanceNormalization or GroupNormalization with a scale and a bias per
  // channel, in attributes as GroupNormalizationChannelsLast has them; nullopt for other nodes.
  std::optional<Attributes> GroupsOf(const Node& node) const {
    const bool is_instance = node.Is("InstanceNormalization") && node.since_version >= 6;
    const bool is_group = node.Is("GroupNormalization") && node.since_version >= 21;
    if ((!is_instance && !is_group) || !rules_.normalizes || !IsImage(node.inputs[0]))
      return std::nullopt;
    for (const ValueId id : node.inputs) {
      if (!IsFloat(graph_, id)) return std::nullopt;
    }
    const Dimension& channels = (*graph_.value(node.inputs[0]).type.shape)[1];
    if (is_instance && !channels.known()) return std::nullopt;
    Attributes attributes;
    attributes.Set("num_groups",
                   is_instance ? channels.value : node.attributes.Int("num_groups", 0));
    attributes.Set("epsilon", node.attributes.Float("epsilon", 1e-5f));
    return attributes;
  }

  // The channels-last twin of a plain value, transposed now if there is none.
  ValueId Twin(ValueId plain) {
    const auto found = last_.find(plain);
    if (found != last_.end()) return found->second;
    const ValueId twin = NewTwin(plain);
    AddTranspose(plain, twin, kToLast);
    return twin;
  }

  ValueId NewTwin(ValueId plain) {
    const ValueId twin = graph_.AddUniqueValue(graph_.value(plain).name + "_channels_last");
    last_[plain] = twin;
    return twin;
  }

  // A plain value that only its twin's producer knows so far gets its transpose.
  void MakePlain(ValueId id) {
    if (!pending_.erase(id)) return;
    AddTranspose(last_.at(id), id, kToFirst);
  }

  void AddTranspose(ValueId from, ValueId to, const std::vector<int64_t>& order) {
    Node node;
    node.name = graph_.value(to).name;
    node.op_type = "Transpose";
    node.since_version = 13;
    node.inputs = {from};
    node.outputs = {to};
    node.attributes.Set("perm", order);
    graph_.nodes.push_back(std::move(node));
  }

  // Adds a node that produces the twin of `plain`; the plain value is made when someone needs it.
  void Emit(Node node, ValueId plain) {
    node.outputs = {NewTwin(plain)};
    pending_.insert(plain);
    graph_.nodes.push_back(std::move(node));
  }

  void Keep(Node node) {
    for (const auto* list : {&node.inputs, &node.captures}) {
      for (const ValueId id : *list) {
        if (id != kNoValue) MakePlain(id);
      }
    }
    graph_.nodes.push_back(std::move(node));
  }

  bool Rewrite(Node& node) {
    const ValueId out = node.output(0);
    if (out == kNoValue || !IsImage(out)) return false;
    if (HasFilters(graph_, node) && IsImage(node.inputs[0]) && rules_.conv(graph_, node)) {
      if (const auto patches = PatchesOf(node); patches && RewritePatches(node, *patches)) {
        return true;
      }
      if (rules_.filters_last) {
        const ValueId turned = TurnedFilters(node);
        if (turned == kNoValue) return false;
        node.inputs[1] = turned;
        node.attributes.Set("filters_last", int64_t{1});
      }
      node.op_type = "ConvChannelsLast";
      node.domain = "onnxd";
      node.since_version = 1;
      const bool is_pixel = IsPixel(node.inputs[0]);
      node.inputs[0] = Twin(node.inputs[0]);
      if (rules_.filters_last && !is_pixel) PadChannels(node);
      if (node.input(3) != kNoValue) node.inputs[3] = Twin(node.inputs[3]);
      Emit(std::move(node), out);
      return true;
    }
    if (node.Is("BatchNormalization") && HasTwin(node.inputs[0])) {
      return RewriteBatchNormalization(node);
    }
    if (IsPool(node) && HasTwin(node.inputs[0])) {
      node.op_type += "ChannelsLast";
      node.domain = "onnxd";
      node.since_version = 1;
      node.attributes.Erase("storage_order");
      node.inputs[0] = Twin(node.inputs[0]);
      Emit(std::move(node), out);
      return true;
    }
    if (const auto groups = GroupsOf(node); groups && HasTwin(node.inputs[0])) {
      node.op_type = "GroupNormalizationChannelsLast";
      node.domain = "onnxd";
      node.since_version = 1;
      node.attributes = *groups;
      node.inputs[0] = Twin(node.inputs[0]);
      Emit(std::move(node), out);
      return true;
    }
    if (node.Is("QLinearConv") && rules_.byte_conv && rules_.byte_conv(graph_, node)) {
      node.op_type = "QLinearConvChannelsLast";
      node.domain = "onnxd";
      node.since_version = 1;
      node.inputs[0] = Twin(node.inputs[0]);
      Emit(std::move(node), out);
      return true;
    }
    if (node.Is("QLinearAdd", "com.microsoft") || node.Is("QLinearMul", "com.microsoft")) {
      if (!HasTwin(node.inputs[0]) || !HasTwin(node.input(3))) return false;
      node.inputs[0] = Twin(node.inputs[0]);
      node.inputs[3] = Twin(node.inputs[3]);
      Emit(std::move(node), out);
      return true;
    }
    if (node.Is("QLinearGlobalAveragePool", "com.microsoft") && HasTwin(node.inputs[0]) &&
        node.attributes.Int("channels_last", 0) == 0) {
      node.attributes.Set("channels_last", int64_t{1});
      node.inputs[0] = Twin(node.inputs[0]);
      Emit(std::move(node), out);
      return true;
    }
    if (IsQuantization(node) && HasTwin(node.inputs[0])) return RewriteQuantization(node);
    if (node.Is("QLinearConcat", "com.microsoft")) return RewriteConcat(node, 2, 3);
    if ((IsElementwiseInAnyLayout(node) || IsByteElementwise(node) || node.Is("Cast")) &&
        HasTwin(node.inputs[0])) {
      node.inputs[0] = Twin(node.inputs[0]);
      Emit(std::move(node), out);
      return true;
    }
    if (IsBinaryInAnyLayout(node)) return RewriteBinary(node);
    if (node.Is("Transpose")) return RewriteTranspose(node);
    if (node.Is("DepthToSpace")) return RewriteDepthToSpace(node);
    if (node.Is("Slice") && HasTwin(node.inputs[0])) return RewriteSlice(node);
    if (node.Is("Split") && HasTwin(node.inputs[0])) return RewriteSplit(node);
    if (node.Is("DepthWindows", "onnxd")) {
      node.attributes.Set("channels_last", int64_t{1});
      node.inputs[0] = Twin(node.inputs[0]);
      Emit(std::move(node), out);
      return true;
    }
    if (node.Is("Pad") && HasTwin(node.inputs[0])) return RewritePad(node);
    if (IsReduction(node) && HasTwin(node.inputs[0])) return RewriteReduction(node);
    if (node.Is("Resize") && HasTwin(node.inputs[0])) return RewriteResize(node);
    if (node.Is("Concat")) return RewriteConcat(node, 0, 1);
    return false;
  }

  // nullopt unless windows neither overlap nor leave gaps, and the image is in the plain layout.
  std::optional<Patches> PatchesOf(const Node& node) const {
    const Attributes& a = node.attributes;
    const Shape& filters = graph_.initializers.at(node.inputs[1]).shape();
    const SymbolicShape& image = *graph_.value(node.inputs[0]).type.shape;
    const auto is = [](const std::vector<int64_t>& numbers, int64_t wanted) {
      return std::all_of(numbers.begin(), numbers.end(),
                         [=](int64_t number) { return number == wanted; });
    };
    const std::vector<int64_t> window = {filters[2], filters[3]};
    if (!rules_.filters_last || !node.Is("Conv") || HasTwin(node.inputs[0]) ||
        a.Int("group", 1) != 1 || a.Ints("strides") != window || is(window, 1) ||
        !is(a.Ints("pads"), 0) || !is(a.Ints("dilations"), 1) ||
        a.String("auto_pad", "NOTSET") != "NOTSET" || image[1].value != filters[1] ||
        image[2].value < 1 || image[2].value % window[0] != 0 || image[3].value < 1 ||
        image[3].value % window[1] != 0) {
      return std::nullopt;
    }
    return Patches{filters[1], image[2].value / window[0], image[3].value / window[1], window[0],
                   window[1]};
  }

  // Patches become rows of a product. False where the filters cannot be had.
  bool RewritePatches(const Node& node, const Patches& p) {
    const auto plain = graph_.initializers.at(node.inputs[1]).Materialize();
    if (!plain.ok()) return false;
    const int64_t filters = plain->shape()[0], size = p.channels * p.height * p.width;
    const auto turned = InChannelsLast(plain->Reshaped(Shape{1, filters, size, 1}));
    if (!turned.ok()) return false;
    const std::string& name = graph_.value(node.inputs[1]).name;
    const ValueId weights =
        graph_.AddInitializer(name + "_of_patches", turned->Reshaped(Shape{size, filters}));
    const ValueId out = node.outputs[0];
    NodeWriter writer(graph_, graph_.nodes, graph_.value(out).name);
    const ValueId split =
        writer.Reshaped(node.inputs[0], {0, p.channels, p.down, p.height, p.across, p.width});
    const ValueId rows =
        writer.Reshaped(writer.Transposed(split, {0, 2, 4, 1, 3, 5}), {0, p.down, p.across, size});
    const ValueId twin = NewTwin(out);
    if (node.input(2) == kNoValue) {
      writer.AddTo(twin, "MatMul", {rows, weights});
    } else {
      writer.AddTo(twin, "Add", {writer.Add("MatMul", {rows, weights}), node.inputs[2]});
    }
    pending_.insert(out);
    return true;
  }

  // A transposition that is in the file makes twins, too: its output of its input, or its input of
  // its output.
  bool RewriteTranspose(Node& node) {
    const std::vector<int64_t> order = node.attributes.Ints("perm");
    const ValueId in = node.inputs[0], out = node.outputs[0];
    if (order == kToFirst && !graph_.IsInitializer(in)) {
      MakePlain(in);
      last_[out] = in;
      pending_.insert(out);
      return true;
    }
    if (order != kToLast || !IsImage(in) || graph_.IsOutput(out)) return false;
    if (HasTwin(in)) {
      replaced_[out] = Twin(in);
      return true;
    }
    last_[in] = out;
    return false;
  }

  // Blocks of channels, of images whose extents are known.
  bool RewriteDepthToSpace(const Node& node) {
    const ValueId in = node.inputs[0], out = node.outputs[0];
    const int64_t size = node.attributes.Int("blocksize", 0);
    if (!HasTwin(in) || size < 1 || node.attributes.String("mode", "DCR") != "DCR") return false;
    std::vector<int64_t> extents;
    for (const ValueId id : {in, out}) {
      for (int axis = 1; axis < 4; ++axis) {
        const Dimension& dimension = (*graph_.value(id).type.shape)[static_cast<size_t>(axis)];
        if (dimension.value < 1) return false;
        extents.push_back(dimension.value);
      }
    }
    NodeWriter writer(graph_, graph_.nodes, graph_.value(out).name);
    const ValueId blocks =
        writer.Reshaped(Twin(in), {0, extents[1], extents[2], size, size, extents[3]});
    const ValueId turned = writer.Transposed(blocks, {0, 1, 3, 2, 4, 5});
    last_[out] = writer.Reshaped(turned, {0, extents[4], extents[5], extents[3]});
    pending_.insert(out);
    return true;
  }

  // With constant axes, which are given.
  bool RewriteSlice(Node& node) {
    auto axes = node.since_version >= 10 ? IntsConstant(graph_, node.input(3)) : std::nullopt;
    if (!axes) return false;
    if (!TurnAxes(*axes)) return false;
    const ValueId out = node.outputs[0];
    node.inputs[3] = Integers(out, "_axes", *axes);
    node.inputs[0] = Twin(node.inputs[0]);
    Emit(std::move(node), out);
    return true;
  }

  // Of channels, where a part stays in the layout.
  bool RewriteSplit(Node& node) {
    const int64_t axis = node.attributes.Int("axis", 0);
    if (axis != 1 && axis != -3) return false;
    bool any_read = false;
    for (const ValueId out : node.outputs) {
      if (!IsImage(out)) return false;
      any_read = any_read || images_read_.contains(out);
    }
    if (!any_read) return false;
    node.attributes.Set("axis", int64_t{3});
    node.inputs[0] = Twin(node.inputs[0]);
    for (ValueId& out : node.outputs) {
      const ValueId plain = out;
      out = NewTwin(plain);
      pending_.insert(plain);
    }
    graph_.nodes.push_back(std::move(node));
    return true;
  }

  // An initializer whose name begins as that of `out`.
  ValueId Integers(ValueId out, const char* what, const std::vector<int64_t>& numbers) {
    return NodeWriter(graph_, graph_.nodes, graph_.value(out).name + what).Integers(numbers);
  }

  // Axes of the plain layout to those of the other one; false where there is no such axis.
  static bool TurnAxes(std::vector<int64_t>& axes) {
    for (int64_t& axis : axes) {
      if (axis < -4 || axis > 3) return false;
      axis = static_cast<int64_t>(std::array{0, 3, 1, 2}[static_cast<size_t>(axis + 4) % 4]);
    }
    return true;
  }

  // Over some axes, which stay.
  bool RewriteReduction(Node& node) {
    auto axes = AxesOfReduction(graph_, node);
    if (!axes || axes->empty() || node.attributes.Int("keepdims", 1) == 0 || !TurnAxes(*axes)) {
      return false;
    }
    const ValueId out = node.outputs[0];
    if (node.input(1) != kNoValue) {
      node.inputs[1] = Integers(out, "_axes", *axes);
    } else {
      node.attributes.Set("axes", *axes);
    }
    node.inputs[0] = Twin(node.inputs[0]);
    Emit(std::move(node), out);
    return true;
  }

  // By constant numbers of all axes.
  bool RewritePad(Node& node) {
    if (node.since_version < 11 || node.input(3) != kNoValue) return false;
    const auto pads = IntsConstant(graph_, node.input(1));
    if (!pads || pads->size() != 8) return false;
    std::vector<int64_t> turned;
    for (const size_t first : {0, 4}) {
      for (const size_t axis : {0, 2, 3, 1}) turned.push_back((*pads)[first + axis]);
    }
    const ValueId out = node.outputs[0];
    node.inputs[1] = Integers(out, "_pads", turned);
    node.inputs[0] = Twin(node.inputs[0]);
    Emit(std::move(node), out);
    return true;
  }

  // Where another convolution follows: what interpolates is often the last of a network, after
  // which a larger image would have to be turned. Few channels are faster as rows.
  bool PaysToInterpolate(ValueId out) const {
    constexpr int64_t kFewChannels = 8;
    const Dimension& channels = (*graph_.value(out).type.shape)[1];
    return images_read_.contains(out) && channels.known() && channels.value >= kFewChannels;
  }

  // By constant scales or sizes of all axes.
  bool RewriteResize(Node& node) {
    const Attributes& a = node.attributes;
    if (node.since_version < 11 ||
        (a.String("mode", "nearest") != "nearest" && !PaysToInterpolate(node.outputs[0])) ||
        !a.Ints("axes").empty() ||
        a.String("coordinate_transformation_mode", "") == "tf_crop_and_resize" ||
        a.String("keep_aspect_ratio_policy", "stretch") != "stretch") {
      return false;
    }
    const size_t by = node.input(3) != kNoValue ? 3 : 2;
    const auto given = graph_.initializers.find(node.input(by));
    if (given == graph_.initializers.end() || given->second.shape() != Shape{4}) return false;
    const auto plain = given->second.Materialize();
    if (!plain.ok()) return false;
    const std::string name = graph_.value(node.input(by)).name + "_channels_last";
    if (plain->type() == DataType::kFloat) {
      node.inputs[by] = graph_.AddInitializer(name, ChannelsLastOf<float>(*plain));
    } else if (plain->type() == DataType::kInt64) {
      node.inputs[by] = graph_.AddInitializer(name, ChannelsLastOf<int64_t>(*plain));
    } else {
      return false;
    }
    node.inputs[1] = kNoValue;
    node.inputs[0] = Twin(node.inputs[0]);
    const ValueId out = node.outputs[0];
    Emit(std::move(node), out);
    return true;
  }

  // One number per axis, in the other order.
  template <typename T>
  static Tensor ChannelsLastOf(const Tensor& plain) {
    const T* from = plain.data<T>();
    return Tensor::Of<T>(Shape{4}, {from[0], from[2], from[3], from[1]});
  }

  // As a product and a sum, which elementwise operators beside them take in.
  bool RewriteBatchNormalization(const Node& node) {
    const ValueId out = node.outputs[0];
    const Dimension& channels = (*graph_.value(out).type.shape)[1];
    if (!IsFloat(graph_, out) || !channels.known()) return false;
    const auto affine = ChannelAffineOf(graph_, node, channels.value);
    if (!affine.ok() || !affine->has_value()) return false;
    const std::string name = graph_.value(out).name;
    const auto row = [&](const std::vector<float>& numbers, const char* what) {
      return graph_.AddInitializer(name + what,
                                   Tensor::Of<float>(Shape{1, 1, 1, channels.value}, numbers));
    };
    NodeWriter writer(graph_, graph_.nodes, name + "_scaled");
    const ValueId scaled =
        writer.Add("Mul", {Twin(node.inputs[0]), row((*affine)->scale, "_scale")});
    Node sum;
    sum.name = node.name;
    sum.op_type = "Add";
    sum.since_version = 14;
    sum.inputs = {scaled, row((*affine)->shift, "_shift")};
    Emit(std::move(sum), out);
    return true;
  }

  // Both sides must have four axes, so that broadcasting means the same in both layouts; constants
  // are turned.
  bool RewriteBinary(Node& node) {
    int twins = 0;
    for (const ValueId id : node.inputs) {
      const auto constant = graph_.initializers.find(id);
      if (constant != graph_.initializers.end()) {
        if (constant->second.shape().rank() > 4) return false;
        continue;
      }
      if (!IsImage(id) || !HasTwin(id)) return false;
      ++twins;
    }
    if (twins == 0) return false;
    std::vector<ValueId> operands;
    for (const ValueId id : node.inputs) {
      const ValueId operand = graph_.IsInitializer(id) ? TurnedConstant(id) : Twin(id);
      if (operand == kNoValue) return false;
      operands.push_back(operand);
    }
    node.inputs = std::move(operands);
    const ValueId out = node.outputs[0];
    Emit(std::move(node), out);
    return true;
  }

  // A constant of up to four axes, which stand for the last ones, in the other layout; kNoValue
  // when its elements cannot be had.
  ValueId TurnedConstant(ValueId id) {
    const auto found = last_.find(id);
    if (found != last_.end()) return found->second;
    const Initializer& constant = graph_.initializers.at(id);
    if (constant.shape().ElementCount() == 1) return id;
    const auto plain = constant.Materialize();
    if (!plain.ok()) return kNoValue;
    auto turned = InChannelsLast(*plain);
    if (!turned.ok()) return kNoValue;
    return last_[id] =
               graph_.AddInitializer(graph_.value(id).name + "_channels_last", std::move(*turned));
  }

  // The filters of a convolution; kNoValue when their elements cannot be had.
  ValueId TurnedFilters(const Node& node) {
    const Initializer& filters = graph_.initializers.at(node.inputs[1]);
    const Shape& shape = filters.shape();
    if (!IsDepthwise(node.attributes, shape)) return TurnedConstant(node.inputs[1]);
    const auto [turned, added] = channel_filters_.emplace(node.inputs[1], kNoValue);
    if (!added) return turned->second;
    const auto plain = filters.Materialize();
    if (!plain.ok()) return kNoValue;
    auto last = InChannelsLast(plain->Reshaped(Shape{1, shape[0], shape[2], shape[3]}));
    if (!last.ok()) return kNoValue;
    const std::string name = graph_.value(node.inputs[1]).name + "_channels_last";
    return turned->second = graph_.AddInitializer(name, std::move(*last));
  }

  // Zeros behind the channels of the image and of the filters, which add nothing.
  void PadChannels(Node& node) {
    const Initializer& filters = graph_.initializers.at(node.inputs[1]);
    const int64_t channels = filters.shape()[3];
    const int64_t missing =
        (rules_.channels_of - channels % rules_.channels_of) % rules_.channels_of;
    if (missing == 0 || node.attributes.Int("group", 1) != 1) return;
    const auto plain = filters.Materialize();
    if (!plain.ok()) return;
    auto padded = WithZeroChannels(*plain, missing);
    if (!padded.ok()) return;
    const std::string name = graph_.value(node.inputs[1]).name + "_padded";
    node.inputs[1] = graph_.AddInitializer(name, std::move(*padded));
    auto [image, added] = padded_.emplace(node.inputs[0], kNoValue);
    if (added) {
      NodeWriter writer(graph_, graph_.nodes, graph_.value(node.inputs[0]).name + "_padded");
      const ValueId pads = writer.Integers({0, 0, 0, 0, 0, 0, 0, missing});
      image->second = writer.Add("Pad", {node.inputs[0], pads});
    }
    node.inputs[0] = image->second;
  }

  // One format for all, or one per channel.
  bool RewriteQuantization(Node& node) {
    const auto scale = graph_.initializers.find(node.input(1));
    if (scale == graph_.initializers.end()) return false;
    if (scale->second.shape().ElementCount() != 1) {
      const int64_t axis = node.attributes.Int("axis", 1);
      if (axis != 1 && axis != -3) return false;
      node.attributes.Set("axis", int64_t{3});
    }
    node.inputs[0] = Twin(node.inputs[0]);
    const ValueId out = node.outputs[0];
    Emit(std::move(node), out);
    return true;
  }

  // The operands that are joined are `first` and every `step`-th after it.
  bool RewriteConcat(Node& node, size_t first, size_t step) {
    const int64_t axis = node.attributes.Int("axis", 1);
    if (axis != 1 && axis != -3) return false;
    for (size_t i = first; i < node.inputs.size(); i += step) {
      if (!HasTwin(node.inputs[i])) return false;
    }
    for (size_t i = first; i < node.inputs.size(); i += step) node.inputs[i] = Twin(node.inputs[i]);
    node.attributes.Set("axis", int64_t{3});
    const ValueId out = node.outputs[0];
    Emit(std::move(node), out);
    return true;
  }

  Graph& graph_;
  const ChannelsLastRules& rules_;
  std::map<ValueId, ValueId> last_;
  std::map<ValueId, ValueId> channel_filters_;  // turned ones of depthwise convolutions
  std::map<ValueId, ValueId> padded_;           // images, by the ones that they are of
  std::set<ValueId> images_read_;
  std::set<ValueId> pending_;
  std::map<ValueId, ValueId> replaced_;  // outputs of dropped transpositions, and what they were
};

}  // namespace

Result<bool> ChannelsLastPass::Run(Graph& graph, const PassContext&) const {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return (HasFilters(graph, node) && rules_.conv(graph, node)) ||
           (node.Is("QLinearConv") && rules_.byte_conv && rules_.byte_conv(graph, node));
  });
  if (!any || (rules_.pays && !rules_.pays(graph))) return false;
  Rewriter(graph, rules_).Run();
  return true;
}

bool IsDepthwise(const Attributes& attributes, const Shape& weights) {
  const int64_t group = attributes.Int("group", 1);
  return group > 1 && weights.rank() == 4 && weights[0] == group && weights[1] == 1;
}

}  // namespace onnxd
