#include "runtime/fusion/quantized_operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

// One scale and zero point, both constant; `zero_point` may be kNoValue, which stands for 0.
struct Format {
  ValueId scale, zero_point;
  DataType type;
  float scale_value;
  int32_t zero_value;
  bool SameAs(const Format& other) const {
    return type == other.type && scale_value == other.scale_value && zero_value == other.zero_value;
  }
};

// The bytes behind a DequantizeLinear.
struct Quantized {
  ValueId bytes;
  Format format;
};

// Constant weights behind a DequantizeLinear, with one scale or one per slice of `axis`.
struct Weights {
  ValueId bytes, scale, zero_point;
  int axis;  // -1: one scale
  Shape shape;
};

// The QuantizeLinear that takes a node's output, and the bounds that activations in between set.
struct Target {
  size_t position;
  Format format;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

// What moves or picks elements of its first input.
bool OnlyMoves(const Node& node) {
  static const std::set<std::string_view> movers = {
      "Reshape", "Transpose", "Flatten",      "Squeeze",      "Unsqueeze", "MaxPool",
      "Slice",   "Gather",    "DepthToSpace", "SpaceToDepth", "Expand",    "Identity"};
  return node.domain.empty() && movers.contains(node.op_type) && node.outputs.size() == 1;
}

class Rewriter {
 public:
  Rewriter(Graph& graph, const QuantizedForms& forms)
      : graph_(graph), forms_(forms), match_(graph) {}

  bool Run() {
    const size_t count = graph_.nodes.size();
    for (size_t i = 0; i < count; ++i) {
      const Node node = graph_.nodes[i];
      if (node.outputs.size() != 1 || !node.captures.empty() || StaysFloat(node)) continue;
      if (node.Is("Conv") || node.Is("FusedConv", "com.microsoft")) {
        RewriteConv(node);
      } else if (node.Is("MatMul")) {
        RewriteMatMul(i, node);
      } else if (node.Is("Gemm")) {
        RewriteGemm(node);
      } else if (forms_.pairs_and_pools && (node.Is("Add") || node.Is("Mul"))) {
        RewritePair(node);
      } else if (forms_.pairs_and_pools && node.Is("GlobalAveragePool")) {
        RewriteGlobalAveragePool(node);
      } else if (node.Is("Concat")) {
        RewriteConcat(node);
      } else if (OnlyMoves(node)) {
        RewriteMove(node);
      } else if (node.Is("Where")) {
        DropGuard(i, node);
      } else if (node.Is("DequantizeLinear")) {
        DropRoundTrip(node);
      }
    }
    return changed_;
  }

 private:
  bool StaysFloat(const Node& node) const {
    return forms_.float_layers.contains(graph_.value(node.outputs[0]).name);
  }

  std::optional<Tensor> Constant(ValueId id) const {
    const auto found = graph_.initializers.find(id);
    if (found == graph_.initializers.end()) return std::nullopt;
    auto tensor = found->second.Materialize();
    if (!tensor.ok()) return std::nullopt;
    return std::move(*tensor);
  }

  // Of a QuantizeLinear or DequantizeLinear between floats and bytes of `type`.
  std::optional<Format> FormatOf(const Node& node, DataType type) const {
    if (!IsByte(type) || node.attributes.Int("block_size", 0) != 0) return std::nullopt;
    const auto scale = Constant(node.input(1));
    if (!scale || scale->type() != DataType::kFloat || scale->ElementCount() != 1) {
      return std::nullopt;
    }
    Format format{node.input(1), node.input(2), type, scale->data<float>()[0], 0};
    if (!(format.scale_value > 0) || !std::isfinite(format.scale_value)) return std::nullopt;
    if (format.zero_point == kNoValue) return format;
    const auto zero = Constant(format.zero_point);
    if (!zero || zero->type() != type || zero->ElementCount() != 1) return std::nullopt;
    const auto byte = *static_cast<const uint8_t*>(zero->raw());
    format.zero_value = type == DataType::kInt8 ? static_cast<int8_t>(byte) : byte;
    return format;
  }

  std::optional<Quantized> Bytes(ValueId floats) const {
    const Node* node = match_.Producer(floats, "DequantizeLinear");
    if (node == nullptr || !IsFloat(graph_, floats)) return std::nullopt;
    const ValueType& type = graph_.value(node->inputs[0]).type;
    if (!type.is_tensor()) return std::nullopt;
    const auto format = FormatOf(*node, type.element);
    if (!format) return std::nullopt;
    return Quantized{node->inputs[0], *format};
  }

  std::optional<Weights> WeightsOf(ValueId floats) const {
    const Node* node = match_.Producer(floats, "DequantizeLinear");
    if (node == nullptr || node->attributes.Int("block_size", 0) != 0) return std::nullopt;
    const auto bytes = graph_.initializers.find(node->inputs[0]);
    const auto scale = graph_.initializers.find(node->input(1));
    if (bytes == graph_.initializers.end() || scale == graph_.initializers.end() ||
        !IsByte(bytes->second.type()) || scale->second.type() != DataType::kFloat) {
      return std::nullopt;
    }
    if (node->input(2) != kNoValue && !graph_.IsInitializer(node->input(2))) return std::nullopt;
    Weights weights{node->inputs[0], node->input(1), node->input(2), -1, bytes->second.shape()};
    if (scale->second.shape().ElementCount() != 1) {
      const int64_t axis = node->attributes.Int("axis", 1);
      weights.axis = static_cast<int>(axis < 0 ? axis + weights.shape.rank() : axis);
    }
    return weights;
  }

  // Follows the one use of `floats`, through activations that only bound it, to its QuantizeLinear.
  std::optional<Target> TargetOf(ValueId floats) const {
    Target target;
    for (int steps = 0; steps < 4; ++steps) {
      const auto& users = match_.index().consumers(floats);
      if (match_.index().use_count(floats) != 1 || users.empty()) return std::nullopt;
      target.position = static_cast<size_t>(users[0]);
      const Node& node = graph_.nodes[target.position];
      if (node.Is("QuantizeLinear")) {
        if (node.inputs[0] != floats) return std::nullopt;
        const ValueType& type = graph_.value(node.outputs[0]).type;
        const auto format = FormatOf(node, type.is_tensor() ? type.element : DataType::kUndefined);
        if (!format) return std::nullopt;
        target.format = *format;
        return target;
      }
      if (!Bound(node, floats, target)) return std::nullopt;
      floats = node.outputs[0];
    }
    return std::nullopt;
  }

  bool Bound(const Node& node, ValueId floats, Target& target) const {
    if (node.Is("Relu")) {
      target.low = std::max(target.low, 0.0f);
      target.high = std::max(target.high, 0.0f);
      return true;
    }
    if (!node.Is("Clip") || node.inputs[0] != floats) return false;
    float low = std::numeric_limits<float>::lowest(), high = std::numeric_limits<float>::max();
    if (node.since_version < 11) {
      low = node.attributes.Float("min", low);
      high = node.attributes.Float("max", high);
    } else {
      for (const size_t i : {1, 2}) {
        if (node.input(i) == kNoValue) continue;
        const auto bound = ScalarConstant(graph_, node.input(i));
        if (!bound) return false;
        (i == 1 ? low : high) = *bound;
      }
    }
    target.low = std::min(std::max(target.low, low), high);
    target.high = std::min(std::max(target.high, low), high);
    return true;
  }

  // The activation inside of a FusedConv.
  static bool BoundByFused(const Node& conv, Target& target) {
    const std::string activation = conv.attributes.String("activation", "");
    if (activation.empty()) return true;
    if (activation == "Relu") {
      target.low = std::max(target.low, 0.0f);
      target.high = std::max(target.high, 0.0f);
      return true;
    }
    const auto& parameters = conv.attributes.Floats("activation_params");
    if (activation != "Clip" || parameters.size() != 2) return false;
    target.low = std::min(std::max(target.low, parameters[0]), parameters[1]);
    target.high = std::min(std::max(target.high, parameters[0]), parameters[1]);
    return true;
  }

  ValueId ZeroPoint(const Format& format) {
    if (format.zero_point != kNoValue) return format.zero_point;
    return Zero(format.type, 1);
  }

  ValueId Zero(DataType type, int64_t count) {
    Tensor zero = *Tensor::Create(type, count == 1 ? Shape{} : Shape{count});
    std::memset(zero.mutable_raw(), 0, zero.bytes());
    return graph_.AddInitializer("zero_point", std::move(zero));
  }

  ValueId ZeroPoint(const Weights& weights) {
    if (weights.zero_point != kNoValue) return weights.zero_point;
    const DataType type = graph_.initializers.at(weights.bytes).type();
    return Zero(type, weights.axis < 0 ? 1 : weights.shape[weights.axis]);
  }

  // Puts `node` in the QuantizeLinear's place; a Clip of bytes follows where bounds cut more than
  // saturation does, which comes to the same since quantization is monotonous.
  void Place(Node node, const Target& target) {
    const Format& format = target.format;
    const int32_t least = format.type == DataType::kInt8 ? -128 : 0;
    const auto step = [&](float value) {
      const float steps =
          std::nearbyint(value / format.scale_value) + static_cast<float>(format.zero_value);
      return static_cast<int32_t>(
          std::clamp(steps, static_cast<float>(least), static_cast<float>(least + 255)));
    };
    const int32_t low = step(target.low), high = step(target.high);
    Node& place = graph_.nodes[target.position];
    node.outputs = {place.outputs[0]};
    if (low > least || high < least + 255) {
      Node clip;
      clip.name = node.name;
      clip.op_type = "Clip";
      clip.since_version = 13;
      clip.inputs = {graph_.AddUniqueValue(graph_.value(place.outputs[0]).name + "_unbounded"),
                     OneByte(format.type, low), OneByte(format.type, high)};
      clip.outputs = node.outputs;
      node.outputs = {clip.inputs[0]};
      graph_.nodes[target.position] = std::move(clip);
      graph_.nodes.push_back(std::move(node));
    } else {
      place = std::move(node);
    }
    changed_ = true;
  }

  ValueId OneByte(DataType type, int32_t value) {
    Tensor byte = *Tensor::Create(type, Shape{});
    *static_cast<uint8_t*>(byte.mutable_raw()) = static_cast<uint8_t>(value);
    return graph_.AddInitializer("bound", std::move(byte));
  }

  // The bias as integers in units of x_scale * w_scale; kNoValue where there is none, nullopt where
  // it cannot be had.
  std::optional<ValueId> IntegerBias(ValueId bias, const Format& x, const Weights& weights,
                                     int64_t count) {
    if (bias == kNoValue) return kNoValue;
    const Node* node = match_.Producer(bias, "DequantizeLinear");
    std::vector<double> values;
    if (node != nullptr) {
      const auto integers = Constant(node->inputs[0]);
      const auto scale = Constant(node->input(1));
      if (!integers || !scale || integers->type() != DataType::kInt32 ||
          scale->type() != DataType::kFloat || integers->ElementCount() != count ||
          (scale->ElementCount() != 1 && scale->ElementCount() != count) ||
          !IsAllZero(node->input(2))) {
        return std::nullopt;
      }
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(
            static_cast<double>(integers->data<int32_t>()[i]) *
            static_cast<double>(scale->data<float>()[scale->ElementCount() == 1 ? 0 : i]));
      }
    } else {
      const auto floats = Constant(bias);
      if (!floats || floats->type() != DataType::kFloat || floats->ElementCount() != count) {
        return std::nullopt;
      }
      values.assign(floats->data<float>(), floats->data<float>() + count);
    }
    const auto scale = Constant(weights.scale);
    if (!scale || (scale->ElementCount() != 1 && scale->ElementCount() != count)) {
      return std::nullopt;
    }
    Tensor out = *Tensor::Create(DataType::kInt32, Shape{count});
    for (int64_t i = 0; i < count; ++i) {
      const double unit =
          static_cast<double>(x.scale_value) *
          static_cast<double>(scale->data<float>()[scale->ElementCount() == 1 ? 0 : i]);
      const double steps = std::nearbyint(values[static_cast<size_t>(i)] / unit);
      if (!(std::abs(steps) < 1 << 30)) return std::nullopt;
      out.mutable_data<int32_t>()[i] = static_cast<int32_t>(steps);
    }
    return graph_.AddInitializer(graph_.value(bias).name + "_integers", std::move(out));
  }

  bool IsAllZero(ValueId id) const {
    if (id == kNoValue) return true;
    const auto tensor = Constant(id);
    if (!tensor) return false;
    const auto* bytes = static_cast<const uint8_t*>(tensor->raw());
    return std::all_of(bytes, bytes + tensor->bytes(), [](uint8_t b) { return b == 0; });
  }

  Node NewNode(const Node& from, std::string op_type, std::string domain, int version) const {
    Node node;
    node.name = from.name;
    node.op_type = std::move(op_type);
    node.domain = std::move(domain);
    node.since_version = version;
    return node;
  }

  void RewriteConv(const Node& conv) {
    const auto x = Bytes(conv.inputs[0]);
    const auto w = WeightsOf(conv.inputs[1]);
    auto target = TargetOf(conv.outputs[0]);
    if (!x || !w || !target || conv.input(3) != kNoValue || w->shape.rank() < 3 || w->axis > 0 ||
        !BoundByFused(conv, *target)) {
      return;
    }
    const auto bias = IntegerBias(conv.input(2), x->format, *w, w->shape[0]);
    if (!bias) return;
    Node node = NewNode(conv, "QLinearConv", "", 10);
    node.attributes = conv.attributes;
    node.attributes.Erase("activation");
    node.attributes.Erase("activation_params");
    node.inputs = {x->bytes, x->format.scale, ZeroPoint(x->format), w->bytes,
                   w->scale, ZeroPoint(*w),   target->format.scale, ZeroPoint(target->format)};
    if (*bias != kNoValue) node.inputs.push_back(*bias);
    if (forms_.takes_conv(graph_, node)) Place(std::move(node), *target);
  }

  void RewriteMatMul(size_t position, const Node& product) {
    const auto a = Bytes(product.inputs[0]);
    const auto b = WeightsOf(product.inputs[1]);
    if (!a || !b || b->shape.rank() != 2 || b->axis == 0) return;
    if (const auto target = TargetOf(product.outputs[0])) {
      Node node = NewNode(product, "QLinearMatMul", "", 10);
      node.inputs = {a->bytes, a->format.scale, ZeroPoint(a->format), b->bytes,
                     b->scale, ZeroPoint(*b),   target->format.scale, ZeroPoint(target->format)};
      Place(std::move(node), *target);
      return;
    }
    if (!forms_.pairs_and_pools) return;
    Node node = NewNode(product, "MatMulIntegerToFloat", "com.microsoft", 1);
    node.inputs = {a->bytes,     b->bytes, a->format.scale, b->scale, ZeroPoint(a->format),
                   ZeroPoint(*b)};
    node.outputs = product.outputs;
    graph_.nodes[position] = std::move(node);
    changed_ = true;
  }

  void RewriteGemm(const Node& gemm) {
    const Attributes& attributes = gemm.attributes;
    const auto a = Bytes(gemm.inputs[0]);
    const auto b = WeightsOf(gemm.inputs[1]);
    const auto target = TargetOf(gemm.outputs[0]);
    const bool transposed = attributes.Int("transB", 0) != 0;
    if (!a || !b || !target || b->shape.rank() != 2 || attributes.Int("transA", 0) != 0 ||
        attributes.Float("alpha", 1) != 1 || attributes.Float("beta", 1) != 1 ||
        (b->axis >= 0 && b->axis != (transposed ? 0 : 1))) {
      return;
    }
    const auto bias = IntegerBias(gemm.input(2), a->format, *b, b->shape[transposed ? 0 : 1]);
    if (!bias) return;
    Node node = NewNode(gemm, "QGemm", "com.microsoft", 1);
    if (transposed) node.attributes.Set("transB", int64_t{1});
    node.inputs = {
        a->bytes, a->format.scale,      ZeroPoint(a->format),     b->bytes, b->scale, ZeroPoint(*b),
        *bias,    target->format.scale, ZeroPoint(target->format)};
    Place(std::move(node), *target);
  }

  void RewritePair(const Node& pair) {
    const auto a = Bytes(pair.inputs[0]), b = Bytes(pair.inputs[1]);
    const auto target = TargetOf(pair.outputs[0]);
    if (pair.since_version < 7 || !a || !b || !target || a->format.type != b->format.type ||
        a->format.type != target->format.type) {
      return;
    }
    Node node = NewNode(pair, "QLinear" + pair.op_type, "com.microsoft", 1);
    node.inputs = {
        a->bytes,        a->format.scale,      ZeroPoint(a->format), b->bytes,
        b->format.scale, ZeroPoint(b->format), target->format.scale, ZeroPoint(target->format)};
    Place(std::move(node), *target);
  }

  void RewriteGlobalAveragePool(const Node& pool) {
    const auto x = Bytes(pool.inputs[0]);
    const auto target = TargetOf(pool.outputs[0]);
    if (!x || !target || x->format.type != target->format.type) return;
    Node node = NewNode(pool, "QLinearGlobalAveragePool", "com.microsoft", 1);
    node.attributes.Set("channels_last", int64_t{0});
    node.inputs = {x->bytes, x->format.scale, ZeroPoint(x->format), target->format.scale,
                   ZeroPoint(target->format)};
    Place(std::move(node), *target);
  }

  void RewriteConcat(const Node& concat) {
    const auto target = TargetOf(concat.outputs[0]);
    if (!target) return;
    std::vector<Quantized> parts;
    bool same = true;
    for (const ValueId id : concat.inputs) {
      const auto part = Bytes(id);
      if (!part || part->format.type != target->format.type) return;
      same = same && part->format.SameAs(target->format);
      parts.push_back(*part);
    }
    if (!same && !forms_.pairs_and_pools) return;
    Node node = same ? concat : NewNode(concat, "QLinearConcat", "com.microsoft", 1);
    node.attributes.Set("axis", concat.attributes.Int("axis", 1));
    node.inputs.clear();
    if (!same) node.inputs = {target->format.scale, ZeroPoint(target->format)};
    for (const Quantized& part : parts) {
      node.inputs.push_back(part.bytes);
      if (same) continue;
      node.inputs.push_back(part.format.scale);
      node.inputs.push_back(ZeroPoint(part.format));
    }
    Place(std::move(node), *target);
  }

  void RewriteMove(const Node& move) {
    const auto x = Bytes(move.inputs[0]);
    const auto target = TargetOf(move.outputs[0]);
    if (!x || !target || !x->format.SameAs(target->format)) return;
    if (move.Is("MaxPool") && move.since_version < 12) return;
    Node node = move;
    node.inputs[0] = x->bytes;
    Place(std::move(node), *target);
  }

  // Where(IsNaN(x), number, x) is x where x was bytes, which stand for numbers alone.
  void DropGuard(size_t position, const Node& guard) {
    const ValueId x = guard.inputs[2];
    const Node* is_nan = match_.Producer(guard.inputs[0], "IsNaN");
    const auto number = graph_.initializers.find(guard.inputs[1]);
    const auto rank = RankOf(graph_, x);
    if (is_nan == nullptr || is_nan->inputs[0] != x || !Bytes(x) ||
        number == graph_.initializers.end() || number->second.shape().ElementCount() != 1 ||
        !rank || number->second.shape().rank() > *rank) {
      return;
    }
    Node identity = NewNode(guard, "Identity", "", 1);
    identity.inputs = {x};
    identity.outputs = guard.outputs;
    graph_.nodes[position] = std::move(identity);
    changed_ = true;
  }

  // QuantizeLinear(DequantizeLinear(x)) of one format is x.
  void DropRoundTrip(const Node& dequantize) {
    const auto x = Bytes(dequantize.outputs[0]);
    if (!x) return;
    for (const int user : match_.index().consumers(dequantize.outputs[0])) {
      Node& node = graph_.nodes[static_cast<size_t>(user)];
      if (!node.Is("QuantizeLinear") || node.inputs[0] != dequantize.outputs[0]) continue;
      const ValueType& type = graph_.value(node.outputs[0]).type;
      const auto format = FormatOf(node, type.is_tensor() ? type.element : DataType::kUndefined);
      if (!format || !format->SameAs(x->format)) continue;
      Node identity = NewNode(node, "Identity", "", 1);
      identity.inputs = {x->bytes};
      identity.outputs = node.outputs;
      node = std::move(identity);
      changed_ = true;
    }
  }

  Graph& graph_;
  const QuantizedForms& forms_;
  GraphMatcher match_;
  bool changed_ = false;
};

}  // namespace

Result<bool> QuantizedOperatorsPass::Run(Graph& graph, const PassContext&) const {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [](const Node& node) { return node.Is("DequantizeLinear"); });
  return any && Rewriter(graph, forms_).Run();
}

}  // namespace onnxd
