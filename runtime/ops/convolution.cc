#include "runtime/ops/convolution.h"

#include <algorithm>

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"
#include "runtime/ops/depth_windows.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 31;

// An attribute with one positive entry per spatial axis; `fallback` each when it is missing.
Result<std::vector<int64_t>> PerAxis(const Node& node, std::string_view name, size_t axes,
                                     int64_t low, int64_t fallback) {
  std::vector<int64_t> values = node.attributes.Ints(name);
  if (values.empty()) values.assign(axes, fallback);
  if (values.size() != axes) {
    return InvalidArgument(StrCat(Describe(node), ": attribute '", name, "' has ", values.size(),
                                  " entries for ", axes, " spatial axes"));
  }
  for (const int64_t value : values) {
    if (value < low || value > kMaxExtent) {
      return InvalidArgument(StrCat(Describe(node), ": attribute '", name, "' holds ", value));
    }
  }
  return values;
}

struct Padding {
  std::vector<int64_t> begin, end;
};

Result<Padding> ExplicitPads(const Node& node, size_t axes) {
  std::vector<int64_t> pads = node.attributes.Ints("pads");
  if (pads.empty()) pads.assign(2 * axes, 0);
  if (pads.size() != 2 * axes) {
    return InvalidArgument(StrCat(Describe(node), ": attribute 'pads' has ", pads.size(),
                                  " entries, expected ", 2 * axes));
  }
  for (const int64_t pad : pads) {
    if (pad < -kMaxExtent || pad > kMaxExtent) {
      return InvalidArgument(StrCat(Describe(node), ": attribute 'pads' holds ", pad));
    }
  }
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(axes);
  return Padding{{pads.begin(), middle}, {middle, pads.end()}};
}

Result<Window> CommonWindow(const Node& node, const std::vector<int64_t>& input,
                            const std::vector<int64_t>& kernel) {
  const size_t axes = input.size();
  if (kernel.size() != axes) {
    return InvalidArgument(StrCat(Describe(node), ": the kernel has ", kernel.size(),
                                  " spatial axes, the input ", axes));
  }
  const std::vector<int64_t> stated = node.attributes.Ints("kernel_shape");
  if (!stated.empty() && stated != kernel) {
    return InvalidArgument(StrCat(Describe(node), ": attribute 'kernel_shape' is ",
                                  Shape(stated).ToString(), ", the weights have ",
                                  Shape(kernel).ToString()));
  }
  for (const int64_t extent : kernel) {
    if (extent < 1 || extent > kMaxExtent) {
      return InvalidArgument(StrCat(Describe(node), ": kernel extent ", extent));
    }
  }
  Window window;
  window.kernel = kernel;
  ONNXD_ASSIGN_OR_RETURN(window.strides, PerAxis(node, "strides", axes, 1, 1));
  ONNXD_ASSIGN_OR_RETURN(window.dilations, PerAxis(node, "dilations", axes, 1, 1));
  ONNXD_ASSIGN_OR_RETURN(Padding padding, ExplicitPads(node, axes));
  window.pads_begin = std::move(padding.begin);
  window.pads_end = std::move(padding.end);
  window.output.resize(axes);
  return window;
}

int64_t DilatedExtent(const Window& window, size_t axis) {
  return (window.kernel[axis] - 1) * window.dilations[axis] + 1;
}

// What an axis of unknown extent is taken to have while the others' results are computed.
constexpr int64_t kStandIn = int64_t{1} << 20;

SymbolicShape SpatialOf(const SymbolicShape& shape) {
  return SymbolicShape(shape.begin() + 2, shape.end());
}

std::vector<int64_t> WithStandIns(const SymbolicShape& spatial) {
  std::vector<int64_t> out;
  for (const Dimension& d : spatial) out.push_back(d.known() ? d.value : kStandIn);
  return out;
}

bool AllKnown(const SymbolicShape& spatial) {
  return std::all_of(spatial.begin(), spatial.end(), [](const Dimension& d) { return d.known(); });
}

// Spatial dimensions, when all are known.
std::optional<std::vector<int64_t>> Spatial(const SymbolicShape& shape) {
  const SymbolicShape spatial = SpatialOf(shape);
  if (!AllKnown(spatial)) return std::nullopt;
  return WithStandIns(spatial);
}

// What a window makes of an axis: unknown where that is, but for windows that change no extent,
// like 3 with a step of 1 and padding of 1 at either side.
Dimension WindowedAxis(const Dimension& input, const Window& window, size_t axis) {
  if (input.known()) return window.output[axis];
  const bool kept = window.strides[axis] == 1 && window.output[axis] == kStandIn;
  return kept && !input.symbol.empty() ? input : Dimension::Unnamed();
}

// The result of a window over the spatial dimensions `input`, of a kernel that is known.
Result<SymbolicShape> Windowed(const Node& node, const SymbolicShape& input,
                               const std::vector<int64_t>& kernel) {
  const auto window = PoolWindow(node, WithStandIns(input), kernel);
  if (!window.ok()) {
    if (AllKnown(input)) return window.status();
    return SymbolicShape(input.size(), Dimension::Unnamed());
  }
  SymbolicShape out;
  for (size_t axis = 0; axis < input.size(); ++axis) {
    out.push_back(WindowedAxis(input[axis], *window, axis));
  }
  return out;
}

SymbolicShape OutputShape(Dimension batch, Dimension channels, const SymbolicShape& spatial) {
  SymbolicShape out = {std::move(batch), std::move(channels)};
  out.insert(out.end(), spatial.begin(), spatial.end());
  return out;
}

// An input of known rank >= 3, or nothing to say; `layout_last` permutes channels to position 1.
Result<std::optional<SymbolicShape>> ChannelsFirst(InferenceContext& context, bool channels_last) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return std::optional<SymbolicShape>();
  if (shape->size() < 3) {
    return context.Fail(StrCat("input of shape ", ToString(*shape), " has no spatial dimensions"));
  }
  SymbolicShape out = *shape;
  if (channels_last) std::rotate(out.begin() + 1, out.end() - 1, out.end());
  return std::optional<SymbolicShape>(std::move(out));
}

void SetLayout(InferenceContext& context, SymbolicShape shape, bool channels_last) {
  if (channels_last) std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  context.SetShape(0, std::move(shape));
}

struct ConvLayout {
  bool channels_last;         // of the input
  bool result_channels_last;  // of the result
};

Status ConvShape(InferenceContext& context, ConvLayout layout, size_t weight_operand = 1) {
  const bool channels_last = layout.channels_last;
  ONNXD_ASSIGN_OR_RETURN(auto shape, ChannelsFirst(context, channels_last));
  const SymbolicShape* given = context.shape(weight_operand);
  if (given == nullptr) return Status::Ok();
  if (!shape && given->size() < 3) return Status::Ok();
  if (!shape) shape = SymbolicShape(given->size(), Dimension::Unnamed());  // of the weights' rank
  const bool filters_last = context.attributes().Int("filters_last", 0) != 0;
  const int64_t group = context.attributes().Int("group", 1);
  if (group < 1) return context.Fail("group must be positive");
  SymbolicShape turned = *given;
  if (filters_last && turned.size() > 1) {
    std::rotate(turned.begin() + 1, turned.end() - 1, turned.end());
    // A filter for each channel: these are last, too.
    if (group > 1) std::swap(turned[0], turned[1]);
  }
  const SymbolicShape* const weights = &turned;
  if (weights->size() != shape->size()) {
    return context.Fail(StrCat("input ", ToString(*shape), " and weights ", ToString(*weights),
                               " have different ranks"));
  }
  const Dimension& channels = (*shape)[1];
  if (channels.known() && (*weights)[1].known() && (*weights)[1].value != channels.value / group) {
    return context.Fail(StrCat("input has ", channels.value, " channels, weights take ",
                               SaturatingMultiply((*weights)[1].value, group)));
  }
  if ((*weights)[0].known() && (*weights)[0].value % group != 0) {
    return context.Fail("output channels do not divide by group");
  }
  SymbolicShape spatial(shape->size() - 2, Dimension::Unnamed());
  if (const auto kernel = Spatial(*weights)) {
    ONNXD_ASSIGN_OR_RETURN(spatial, Windowed(context.node(), SpatialOf(*shape), *kernel));
  }
  SetLayout(context, OutputShape((*shape)[0], (*weights)[0], spatial), layout.result_channels_last);
  return Status::Ok();
}

Status Conv(InferenceContext& context) { return ConvShape(context, {false, false}); }
Status ConvChannelsLast(InferenceContext& context) { return ConvShape(context, {true, true}); }
Status PlanarConv(InferenceContext& context) { return ConvShape(context, {false, true}); }

Status QuantizedConvShape(InferenceContext& context, bool channels_last) {
  if (context.input(7).is_tensor()) context.SetElement(0, context.input(7).element);
  return ConvShape(context, {channels_last, channels_last}, 3);
}
Status QLinearConv(InferenceContext& context) { return QuantizedConvShape(context, false); }
Status QLinearConvChannelsLast(InferenceContext& context) {
  return QuantizedConvShape(context, true);
}
Status ConvInteger(InferenceContext& context) {
  context.SetElement(0, DataType::kInt32);
  return ConvShape(context, {false, false});
}

// A convolution to weights[3][0] channels, then a window over each of them, and a 1 x 1 convolution
// of these where there is a sixth input. The first one is 1 x 1, or reads planes.
Status ExpandDepthwiseShape(InferenceContext& context, bool planar) {
  ONNXD_ASSIGN_OR_RETURN(const auto shape, ChannelsFirst(context, !planar));
  const SymbolicShape* expand = context.shape(1);
  const SymbolicShape* weights = context.shape(3);
  if (!shape || expand == nullptr || weights == nullptr) return Status::Ok();
  const SymbolicShape* project = context.node().input(5) != kNoValue ? context.shape(5) : weights;
  if (project == nullptr || project->size() != 4) return Status::Ok();
  if (context.node().outputs.size() > 1) {
    context.SetShape(1, {(*shape)[0], Dimension(1), Dimension(1), (*project)[0]});
  }
  if (shape->size() != 4 || expand->size() != 4 || weights->size() != 4) {
    return context.Fail("input and weights must have rank 4");
  }
  const Dimension &in = (*shape)[1], &taken = (*expand)[1];
  if (in.known() && taken.known() && in.value != taken.value) {
    return context.Fail(StrCat("input has ", in.value, " channels, weights take ", taken.value));
  }
  SymbolicShape spatial = SpatialOf(*shape);
  const auto expand_kernel = Spatial(*expand), kernel = Spatial(*weights);
  if (!kernel || (planar && !expand_kernel)) {
    SetLayout(context,
              OutputShape((*shape)[0], (*project)[0], SymbolicShape(2, Dimension::Unnamed())),
              true);
    return Status::Ok();
  }
  if (planar) {
    ONNXD_ASSIGN_OR_RETURN(spatial,
                           Windowed(ExpandNodeOf(context.node()), spatial, *expand_kernel));
  }
  ONNXD_ASSIGN_OR_RETURN(spatial, Windowed(context.node(), spatial, *kernel));
  SetLayout(context, OutputShape((*shape)[0], (*project)[0], spatial), true);
  return Status::Ok();
}

Status ExpandDepthwise(InferenceContext& context) { return ExpandDepthwiseShape(context, false); }
Status PlanarDepthwise(InferenceContext& context) { return ExpandDepthwiseShape(context, true); }

Status ConvTranspose(InferenceContext& context) {
  ONNXD_ASSIGN_OR_RETURN(const auto shape, ChannelsFirst(context, false));
  const SymbolicShape* weights = context.shape(1);
  if (!shape || weights == nullptr) return Status::Ok();
  if (weights->size() != shape->size()) return context.Fail("input and weights differ in rank");
  const int64_t group = context.attributes().Int("group", 1);
  if (group < 1) return context.Fail("group must be positive");
  if ((*shape)[1].known() && (*weights)[0].known() && (*shape)[1].value != (*weights)[0].value) {
    return context.Fail(
        StrCat("input has ", (*shape)[1].value, " channels, weights take ", (*weights)[0].value));
  }
  if ((*weights)[0].known() && (*weights)[0].value % group != 0) {
    return context.Fail("input channels do not divide by group");
  }
  Dimension channels;
  if ((*weights)[1].known()) channels = SaturatingMultiply((*weights)[1].value, group);
  const SymbolicShape input = SpatialOf(*shape);
  SymbolicShape spatial(input.size(), Dimension::Unnamed());
  if (const auto kernel = Spatial(*weights)) {
    const auto window = TransposedWindow(context.node(), WithStandIns(input), *kernel);
    if (!window.ok() && AllKnown(input)) return window.status();
    for (size_t axis = 0; window.ok() && axis < input.size(); ++axis) {
      if (input[axis].known()) spatial[axis] = window->output[axis];
    }
  }
  context.SetShape(0, OutputShape((*shape)[0], channels, spatial));
  return Status::Ok();
}

Status PoolShape(InferenceContext& context, bool channels_last) {
  context.SetElement(1, DataType::kInt64);
  ONNXD_ASSIGN_OR_RETURN(const auto shape, ChannelsFirst(context, channels_last));
  if (!shape) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(
      const SymbolicShape spatial,
      Windowed(context.node(), SpatialOf(*shape), context.attributes().Ints("kernel_shape")));
  SymbolicShape out = OutputShape((*shape)[0], (*shape)[1], spatial);
  context.SetShape(1, out);
  SetLayout(context, std::move(out), channels_last);
  return Status::Ok();
}

Status Pool(InferenceContext& context) { return PoolShape(context, false); }
Status PoolChannelsLast(InferenceContext& context) { return PoolShape(context, true); }

Status GlobalPoolShape(InferenceContext& context, bool channels_last) {
  ONNXD_ASSIGN_OR_RETURN(const auto shape, ChannelsFirst(context, channels_last));
  if (!shape) return Status::Ok();
  SymbolicShape out = *shape;
  std::fill(out.begin() + 2, out.end(), Dimension(1));
  SetLayout(context, std::move(out), channels_last);
  return Status::Ok();
}

Status GlobalPool(InferenceContext& context) { return GlobalPoolShape(context, false); }
Status GlobalPoolChannelsLast(InferenceContext& context) { return GlobalPoolShape(context, true); }

Status DepthWindowsShape(InferenceContext& context) {
  ONNXD_ASSIGN_OR_RETURN(const DepthWindows windows, DepthWindowsOf(context.node()));
  const SymbolicShape* x = context.shape(0);
  if (x == nullptr) return Status::Ok();
  if (x->size() != 4) return context.Fail("X does not have four axes");
  SymbolicShape out = *x;
  Dimension& channels = out[windows.channels_last ? 3 : 1];
  if (channels.known()) {
    channels = Dimension(SaturatingMultiply(channels.value, windows.kernel));
  } else {
    channels = Dimension();
  }
  if (out[0].known()) {
    if (out[0].value % windows.depth != 0) return context.Fail("X is not of whole volumes");
    out[0] = Dimension(SaturatingMultiply(out[0].value / windows.depth, windows.outputs()));
  } else if (windows.outputs() != windows.depth) {
    out[0] = Dimension();
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "AveragePool", Pool},
    {"", "Conv", Conv},
    {"", "ConvInteger", ConvInteger},
    {"", "ConvTranspose", ConvTranspose},
    {"", "GlobalAveragePool", GlobalPool},
    {"", "GlobalLpPool", GlobalPool},
    {"", "GlobalMaxPool", GlobalPool},
    {"", "LpPool", Pool},
    {"", "MaxPool", Pool},
    {"", "QLinearConv", QLinearConv},
    {"com.microsoft", "FusedConv", Conv},
    {"onnxd", "AveragePoolChannelsLast", PoolChannelsLast},
    {"onnxd", "ConvChannelsLast", ConvChannelsLast},
    {"onnxd", "ConvWinograd", ConvChannelsLast},
    {"onnxd", "DepthWindows", DepthWindowsShape},
    {"onnxd", "ExpandDepthwise", ExpandDepthwise},
    {"onnxd", "GatedConv", ConvChannelsLast},
    {"onnxd", "GlobalAveragePoolChannelsLast", GlobalPoolChannelsLast},
    {"onnxd", "MaxPoolChannelsLast", PoolChannelsLast},
    {"onnxd", "PlanarConv", PlanarConv},
    {"onnxd", "PlanarDepthwise", PlanarDepthwise},
    {"onnxd", "QLinearConvChannelsLast", QLinearConvChannelsLast},
};

}  // namespace

Node ExpandNodeOf(const Node& node) {
  constexpr std::string_view kPrefix = "expand_";
  Node expand;
  expand.name = node.name;
  expand.op_type = node.op_type;
  expand.domain = node.domain;
  for (const auto& [name, value] : node.attributes.entries()) {
    if (name.starts_with(kPrefix)) expand.attributes.Set(name.substr(kPrefix.size()), value);
  }
  return expand;
}

Result<Window> PoolWindow(const Node& node, const std::vector<int64_t>& input,
                          const std::vector<int64_t>& kernel) {
  ONNXD_ASSIGN_OR_RETURN(Window window, CommonWindow(node, input, kernel));
  const std::string auto_pad = node.attributes.String("auto_pad", "NOTSET");
  const bool ceil_mode = node.attributes.Int("ceil_mode", 0) != 0;
  for (size_t i = 0; i < input.size(); ++i) {
    const int64_t extent = DilatedExtent(window, i);
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      window.output[i] = (input[i] + window.strides[i] - 1) / window.strides[i];
      const int64_t total =
          std::max<int64_t>(0, (window.output[i] - 1) * window.strides[i] + extent - input[i]);
      window.pads_begin[i] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      window.pads_end[i] = total - window.pads_begin[i];
      continue;
    }
    if (auto_pad == "VALID") {
      window.pads_begin[i] = window.pads_end[i] = 0;
    } else if (auto_pad != "NOTSET" && !auto_pad.empty()) {
      return InvalidArgument(StrCat(Describe(node), ": unknown auto_pad '", auto_pad, "'"));
    }
    const int64_t span = input[i] + window.pads_begin[i] + window.pads_end[i] - extent;
    if (span < 0) {
      return InvalidArgument(StrCat(Describe(node), ": a kernel extent of ", extent,
                                    " is larger than the padded input of ", span + extent));
    }
    window.output[i] = span / window.strides[i] + 1;
    if (ceil_mode && span % window.strides[i] != 0) {
      // The last window must start inside the input or its leading padding.
      if (window.output[i] * window.strides[i] < input[i] + window.pads_begin[i]) {
        ++window.output[i];
      }
    }
  }
  return window;
}

Result<Window> TransposedWindow(const Node& node, const std::vector<int64_t>& input,
                                const std::vector<int64_t>& kernel) {
  ONNXD_ASSIGN_OR_RETURN(Window window, CommonWindow(node, input, kernel));
  ONNXD_ASSIGN_OR_RETURN(const auto extra, PerAxis(node, "output_padding", input.size(), 0, 0));
  std::vector<int64_t> wanted = node.attributes.Ints("output_shape");
  // Old files state batch and channels too.
  if (wanted.size() == input.size() + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && wanted.size() != input.size()) {
    return InvalidArgument(StrCat(Describe(node), ": output_shape has the wrong length"));
  }
  const std::string auto_pad = node.attributes.String("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  for (size_t i = 0; i < input.size(); ++i) {
    const int64_t full = SaturatingAdd(SaturatingMultiply(input[i] - 1, window.strides[i]),
                                       SaturatingAdd(extra[i], DilatedExtent(window, i)));
    if (!wanted.empty() || same) {
      window.output[i] = wanted.empty() ? input[i] * window.strides[i] : wanted[i];
      const int64_t total = std::max<int64_t>(0, full - window.output[i]);
      const int64_t small = total / 2;
      window.pads_begin[i] = auto_pad == "SAME_UPPER" ? small : total - small;
      window.pads_end[i] = total - window.pads_begin[i];
    } else {
      window.output[i] = full - window.pads_begin[i] - window.pads_end[i];
    }
    if (window.output[i] < 1 || window.output[i] > kMaxExtent) {
      return InvalidArgument(
          StrCat(Describe(node), ": output extent ", window.output[i], " is out of range"));
    }
  }
  return window;
}

std::span<const InferenceRule> ConvolutionRules() { return kRules; }

}  // namespace onnxd
