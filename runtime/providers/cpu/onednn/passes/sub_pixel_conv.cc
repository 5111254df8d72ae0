#include "runtime/providers/cpu/onednn/passes/sub_pixel_conv.h"

#include <limits>

#include "runtime/base/checked_math.h"
#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/providers/cpu/onednn/passes/channels_last.h"

namespace onnxd {
namespace {

constexpr int kRank = 3;
constexpr int64_t kMostElements = int64_t{1} << 31;  // of the weights
const std::vector<int64_t> kTurned = {0, 2, 1};      // channels and length, either way

// A ConvTranspose whose window is `taps` times its stride.
struct SubPixel {
  int64_t in, out, stride, taps;
  int64_t skipped_first, skipped_last;  // elements of the whole result
};

int64_t OnlyOf(const std::vector<int64_t>& values, size_t at, int64_t fallback) {
  return at < values.size() ? values[at] : fallback;
}

std::optional<SubPixel> SubPixelOf(const Graph& graph, const Node& node) {
  if (!node.Is("ConvTranspose") || !IsFloat(graph, node.inputs[0])) return std::nullopt;
  const auto weights = graph.initializers.find(node.inputs[1]);
  if (weights == graph.initializers.end() || weights->second.shape().rank() != kRank ||
      weights->second.type() != DataType::kFloat) {
    return std::nullopt;
  }
  const ValueId bias = node.input(2);
  if (bias != kNoValue && !graph.IsInitializer(bias)) return std::nullopt;
  const Attributes& a = node.attributes;
  if (a.Int("group", 1) != 1 || OnlyOf(a.Ints("dilations"), 0, 1) != 1 ||
      a.String("auto_pad", "NOTSET") != "NOTSET" || !a.Ints("output_shape").empty()) {
    return std::nullopt;
  }
  const Shape& w = weights->second.shape();
  const std::vector<int64_t> pads = a.Ints("pads");
  const int64_t stride = OnlyOf(a.Ints("strides"), 0, 1), first = OnlyOf(pads, 0, 0);
  const int64_t last = SaturatingAdd(OnlyOf(pads, 1, 0), -OnlyOf(a.Ints("output_padding"), 0, 0));
  if (stride < 2 || w[2] < stride || w[2] % stride != 0 || first < 0 || first >= w[2] || last < 0 ||
      last >= w[2] || w.ElementCount() == 0 || w.ElementCount() > kMostElements) {
    return std::nullopt;
  }
  return SubPixel{w[0], w[1], stride, w[2] / stride, first, last};
}

// w[in, out, taps * stride] as [stride * out, in, taps], the taps in reverse.
Result<Tensor> Phases(const Tensor& w, const SubPixel& s) {
  ONNXD_ASSIGN_OR_RETURN(Tensor phases,
                         Tensor::Create(DataType::kFloat, Shape{s.stride * s.out, s.in, s.taps}));
  float* to = phases.mutable_data<float>();
  for (int64_t phase = 0; phase < s.stride; ++phase) {
    for (int64_t o = 0; o < s.out; ++o) {
      for (int64_t i = 0; i < s.in; ++i) {
        const float* from = w.data<float>() + (i * s.out + o) * s.taps * s.stride + phase;
        for (int64_t tap = s.taps - 1; tap >= 0; --tap) *to++ = from[tap * s.stride];
      }
    }
  }
  return phases;
}

// bias[out], once for each phase.
Result<Tensor> Repeated(const Tensor& bias, const SubPixel& s) {
  ONNXD_ASSIGN_OR_RETURN(Tensor repeated,
                         Tensor::Create(DataType::kFloat, Shape{s.stride * s.out}));
  for (int64_t phase = 0; phase < s.stride; ++phase) {
    std::copy_n(bias.data<float>(), s.out, repeated.mutable_data<float>() + phase * s.out);
  }
  return repeated;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "sub_pixel_conv"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphIndex index(graph);
    std::vector<Node> added;
    for (Node& node : graph.nodes) {
      const auto sub_pixel = SubPixelOf(graph, node);
      if (!sub_pixel) continue;
      const Gap gap = Open(graph, index, node);
      ONNXD_RETURN_IF_ERROR(MakeConv(graph, *sub_pixel, node));
      NodeWriter writer(graph, added, graph.value(gap.to).name);
      Interleave(*sub_pixel, gap, writer);
    }
    const bool changed = !added.empty();
    for (Node& node : added) graph.nodes.push_back(std::move(node));
    return changed;
  }

 private:
  // Where nodes come between: they make `to` of `from`.
  struct Gap {
    ValueId from, to;
  };

  // Behind a node, and what follows it element by element.
  static Gap Open(Graph& graph, const GraphIndex& index, Node& node) {
    const ValueId out = node.outputs[0];
    const std::string name = graph.value(out).name + "_phases";
    node.outputs[0] = graph.AddUniqueValue(name);
    if (index.use_count(out) == 1) {
      for (Node& next : graph.nodes) {
        if (next.input(0) != out || !IsElementwiseInAnyLayout(next)) continue;
        next.inputs[0] = node.outputs[0];
        const ValueId to = next.outputs[0];
        next.outputs[0] = graph.AddUniqueValue(name);
        return {next.outputs[0], to};
      }
    }
    return {node.outputs[0], out};
  }

  static Status MakeConv(Graph& graph, const SubPixel& sub_pixel, Node& node) {
    const std::string name = graph.value(node.inputs[1]).name + "_phases";
    ONNXD_ASSIGN_OR_RETURN(const Tensor weights,
                           graph.initializers.at(node.inputs[1]).Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor phases, Phases(weights, sub_pixel));
    node.op_type = "Conv";
    node.since_version = 11;
    node.inputs[1] = graph.AddInitializer(name, std::move(phases));
    if (node.input(2) != kNoValue) {
      ONNXD_ASSIGN_OR_RETURN(const Tensor bias,
                             graph.initializers.at(node.inputs[2]).Materialize());
      ONNXD_ASSIGN_OR_RETURN(Tensor repeated, Repeated(bias, sub_pixel));
      node.inputs[2] = graph.AddInitializer(name + "_bias", std::move(repeated));
    }
    const int64_t pad = sub_pixel.taps - 1;
    node.attributes = {};
    node.attributes.Set("pads", std::vector<int64_t>{pad, pad});
    return Status::Ok();
  }

  // [batch, stride * out, length] to [batch, out, length * stride], cut at both ends.
  static void Interleave(const SubPixel& sub_pixel, const Gap& gap, NodeWriter& writer) {
    ValueId signal = writer.Reshaped(writer.Transposed(gap.from, kTurned), {0, -1, sub_pixel.out});
    if (sub_pixel.skipped_first > 0 || sub_pixel.skipped_last > 0) {
      const int64_t end = sub_pixel.skipped_last > 0 ? -sub_pixel.skipped_last
                                                     : std::numeric_limits<int64_t>::max();
      signal = writer.Add("Slice", {signal, writer.Integers({sub_pixel.skipped_first}),
                                    writer.Integers({end}), writer.Integers({1})});
    }
    writer.AddTo(gap.to, "Transpose", {signal}, NodeWriter::Order(kTurned));
  }
};

}  // namespace

const GraphPass* SubPixelConv() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
