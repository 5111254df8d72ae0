#include "runtime/providers/cpu/onednn/passes/sub_pixel_conv.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "runtime/graph/any_layout.h"
#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"

namespace onnxd {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 31;  // of the weights
const std::vector<int64_t> kTurned = {0, 2, 1};      // channels and length, either way

// A ConvTranspose whose window is `taps` times its stride.
struct SubPixel {
  struct Axis {
    int64_t stride = 1, taps = 1;
    int64_t skipped_first = 0, skipped_last = 0;  // elements of the whole result
  };

  int64_t in, out;
  std::vector<Axis> axes;  // one of a signal, two of an image, which have the same stride

  int64_t phases() const { return axes.front().stride * (axes.size() == 2 ? axes[1].stride : 1); }
};

std::optional<SubPixel::Axis> AxisOf(const Attributes& attributes, int64_t window, size_t axis,
                                     size_t axes) {
  const auto value = [&](const char* name, size_t at, int64_t fallback) {
    const std::vector<int64_t> values = attributes.Ints(name);
    return at < values.size() ? values[at] : fallback;
  };
  const int64_t stride = value("strides", axis, 1), first = value("pads", axis, 0);
  const int64_t pad = value("pads", axes + axis, 0), added = value("output_padding", axis, 0);
  if (pad < 0 || added < 0) return std::nullopt;
  const int64_t last = pad - added;
  if (value("dilations", axis, 1) != 1 || stride < 2 || window < stride || window % stride != 0 ||
      first < 0 || first >= window || last < 0 || last >= window) {
    return std::nullopt;
  }
  return SubPixel::Axis{stride, window / stride, first, last};
}

std::optional<SubPixel> SubPixelOf(const Graph& graph, const Node& node) {
  if (!node.Is("ConvTranspose") || !IsFloat(graph, node.inputs[0])) return std::nullopt;
  const auto weights = graph.initializers.find(node.inputs[1]);
  if (weights == graph.initializers.end() || weights->second.type() != DataType::kFloat) {
    return std::nullopt;
  }
  const ValueId bias = node.input(2);
  if (bias != kNoValue && !graph.IsInitializer(bias)) return std::nullopt;
  const Attributes& a = node.attributes;
  const Shape& w = weights->second.shape();
  if (a.Int("group", 1) != 1 || a.String("auto_pad", "NOTSET") != "NOTSET" ||
      !a.Ints("output_shape").empty() || (w.rank() != 3 && w.rank() != 4) ||
      w.ElementCount() == 0 || w.ElementCount() > kMostElements) {
    return std::nullopt;
  }
  SubPixel sub_pixel{w[0], w[1], {}};
  const auto count = static_cast<size_t>(w.rank() - 2);
  for (size_t i = 0; i < count; ++i) {
    const auto axis = AxisOf(a, w[static_cast<int>(i) + 2], i, count);
    if (!axis || (i > 0 && axis->stride != sub_pixel.axes.front().stride)) return std::nullopt;
    sub_pixel.axes.push_back(*axis);
  }
  return sub_pixel;
}

// w[in, out, taps * stride, ...] as [stride * ... * out, in, taps, ...], the taps in reverse.
Result<Tensor> Phases(const Tensor& w, const SubPixel& s) {
  const bool is_signal = s.axes.size() == 1;
  const SubPixel::Axis rows = is_signal ? SubPixel::Axis{} : s.axes[0], columns = s.axes.back();
  const int64_t height = rows.taps * rows.stride, width = columns.taps * columns.stride;
  ONNXD_ASSIGN_OR_RETURN(
      Tensor phases,
      Tensor::Create(DataType::kFloat,
                     is_signal ? Shape{s.phases() * s.out, s.in, columns.taps}
                               : Shape{s.phases() * s.out, s.in, rows.taps, columns.taps}));
  float* to = phases.mutable_data<float>();
  for (int64_t channel = 0; channel < s.phases() * s.out; ++channel) {
    const int64_t phase = channel / s.out, o = channel % s.out;
    const int64_t row = phase / columns.stride, column = phase % columns.stride;
    for (int64_t i = 0; i < s.in; ++i) {
      const float* from = w.data<float>() + ((i * s.out + o) * height + row) * width + column;
      for (int64_t y = rows.taps - 1; y >= 0; --y) {
        for (int64_t x = columns.taps - 1; x >= 0; --x) {
          *to++ = from[y * rows.stride * width + x * columns.stride];
        }
      }
    }
  }
  return phases;
}

// bias[out], once for each phase.
Result<Tensor> Repeated(const Tensor& bias, const SubPixel& s) {
  ONNXD_ASSIGN_OR_RETURN(Tensor repeated,
                         Tensor::Create(DataType::kFloat, Shape{s.phases() * s.out}));
  for (int64_t phase = 0; phase < s.phases(); ++phase) {
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
    std::vector<int64_t> pads;
    for (const auto& axis : sub_pixel.axes) pads.push_back(axis.taps - 1);
    pads.insert(pads.end(), pads.begin(), pads.end());
    node.attributes = {};
    node.attributes.Set("pads", std::move(pads));
    return Status::Ok();
  }

  // [batch, phases * out, ...] to [batch, out, ... * stride], cut at the ends.
  static void Interleave(const SubPixel& sub_pixel, const Gap& gap, NodeWriter& writer) {
    if (sub_pixel.axes.size() == 1) {
      const ValueId signal =
          writer.Reshaped(writer.Transposed(gap.from, kTurned), {0, -1, sub_pixel.out});
      writer.AddTo(gap.to, "Transpose", {Cut(sub_pixel, signal, 1, writer)},
                   NodeWriter::Order(kTurned));
      return;
    }
    Attributes blocks;
    blocks.Set("blocksize", sub_pixel.axes.front().stride);
    const ValueId image = writer.Add("DepthToSpace", {gap.from}, std::move(blocks));
    writer.AddTo(gap.to, "Identity", {Cut(sub_pixel, image, 2, writer)});
  }

  // Without what is skipped of the axes from `first_axis` on.
  static ValueId Cut(const SubPixel& sub_pixel, ValueId whole, int64_t first_axis,
                     NodeWriter& writer) {
    std::vector<int64_t> begins, ends, axes;
    for (const auto& axis : sub_pixel.axes) {
      begins.push_back(axis.skipped_first);
      ends.push_back(axis.skipped_last > 0 ? -axis.skipped_last
                                           : std::numeric_limits<int64_t>::max());
      axes.push_back(first_axis++);
    }
    const bool is_whole = std::all_of(
        sub_pixel.axes.begin(), sub_pixel.axes.end(),
        [](const auto& axis) { return axis.skipped_first == 0 && axis.skipped_last == 0; });
    if (is_whole) return whole;
    return writer.Add(
        "Slice", {whole, writer.Integers(begins), writer.Integers(ends), writer.Integers(axes)});
  }
};

}  // namespace

const GraphPass* SubPixelConv() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
