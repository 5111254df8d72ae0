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

// Spatial dimensions, when all are known.
std::optional<std::vector<int64_t>> Spatial(const SymbolicShape& shape) {
  std::vector<int64_t> out;
  for (size_t i = 2; i < shape.size(); ++i) {
    if (!shape[i].known()) return std::nullopt;
    out.push_back(shape[i].value);
  }
  return out;
}

SymbolicShape OutputShape(Dimension batch, Dimension channels, const Window& window) {
  SymbolicShape out = {std::move(batch), std::move(channels)};
  out.insert(out.end(), window.output.begin(), window.output.end());
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

bool IsOne(const Dimension& dimension) { return dimension.known() && dimension.value == 1; }

struct ConvLayout {
  bool channels_last;         // of the input
  bool result_channels_last;  // of the result
};

Status ConvShape(InferenceContext& context, ConvLayout layout, size_t weight_operand = 1) {
  const bool channels_last = layout.channels_last;
  ONNXD_ASSIGN_OR_RETURN(const auto shape, ChannelsFirst(context, channels_last));
  const SymbolicShape* given = context.shape(weight_operand);
  if (!shape || given == nullptr) return Status::Ok();
  const bool filters_last = context.attributes().Int("filters_last", 0) != 0;
  SymbolicShape turned = *given;
  if (filters_last && turned.size() > 1) {
    std::rotate(turned.begin() + 1, turned.end() - 1, turned.end());
    // A filter for each channel: these are last, too.
    if (IsOne(turned[0]) && !IsOne(turned[1])) std::swap(turned[0], turned[1]);
  }
  const SymbolicShape* const weights = &turned;
  if (weights->size() != shape->size()) {
    return context.Fail(StrCat("input ", ToString(*shape), " and weights ", ToString(*weights),
                               " have different ranks"));
  }
  const int64_t group = context.attributes().Int("group", 1);
  const Dimension& channels = (*shape)[1];
  if (group < 1) return context.Fail("group must be positive");
  if (channels.known() && (*weights)[1].known() && (*weights)[1].value != channels.value / group) {
    return context.Fail(StrCat("input has ", channels.value, " channels, weights take ",
                               SaturatingMultiply((*weights)[1].value, group)));
  }
  if ((*weights)[0].known() && (*weights)[0].value % group != 0) {
    return context.Fail("output channels do not divide by group");
  }
  const auto spatial = Spatial(*shape);
  const auto kernel = Spatial(*weights);
  if (!spatial || !kernel) {
    SymbolicShape unknown(shape->size());
    unknown[0] = (*shape)[0];
    unknown[1] = (*weights)[0];
    SetLayout(context, std::move(unknown), layout.result_channels_last);
    return Status::Ok();
  }
  ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(context.node(), *spatial, *kernel));
  SetLayout(context, OutputShape((*shape)[0], (*weights)[0], window), layout.result_channels_last);
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
  auto spatial = Spatial(*shape);
  const auto kernel = Spatial(*weights);
  if (shape->size() != 4 || expand->size() != 4 || weights->size() != 4) {
    return context.Fail("input and weights must have rank 4");
  }
  const Dimension &in = (*shape)[1], &taken = (*expand)[1];
  if (in.known() && taken.known() && in.value != taken.value) {
    return context.Fail(StrCat("input has ", in.value, " channels, weights take ", taken.value));
  }
  if (planar && spatial) {
    const auto expand_kernel = Spatial(*expand);
    if (expand_kernel) {
      ONNXD_ASSIGN_OR_RETURN(const Window window,
                             PoolWindow(ExpandNodeOf(context.node()), *spatial, *expand_kernel));
      spatial = window.output;
    } else {
      spatial.reset();
    }
  }
  if (!spatial || !kernel) {
    SymbolicShape unknown(4);
    unknown[0] = (*shape)[0];
    unknown[1] = (*project)[0];
    SetLayout(context, std::move(unknown), true);
    return Status::Ok();
  }
  ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(context.node(), *spatial, *kernel));
  SetLayout(context, OutputShape((*shape)[0], (*project)[0], window), true);
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
  const auto spatial = Spatial(*shape);
  const auto kernel = Spatial(*weights);
  if (!spatial || !kernel || !(*weights)[1].known()) {
    context.SetShape(0, SymbolicShape(shape->size()));
    return Status::Ok();
  }
  ONNXD_ASSIGN_OR_RETURN(const Window window, TransposedWindow(context.node(), *spatial, *kernel));
  context.SetShape(
      0, OutputShape((*shape)[0], SaturatingMultiply((*weights)[1].value, group), window));
  return Status::Ok();
}

Status PoolShape(InferenceContext& context, bool channels_last) {
  context.SetElement(1, DataType::kInt64);
  ONNXD_ASSIGN_OR_RETURN(const auto shape, ChannelsFirst(context, channels_last));
  if (!shape) return Status::Ok();
  const auto spatial = Spatial(*shape);
  if (!spatial) {
    SymbolicShape unknown(shape->size());
    unknown[0] = (*shape)[0];
    unknown[1] = (*shape)[1];
    context.SetShape(1, unknown);
    SetLayout(context, std::move(unknown), channels_last);
    return Status::Ok();
  }
  ONNXD_ASSIGN_OR_RETURN(
      const Window window,
      PoolWindow(context.node(), *spatial, context.attributes().Ints("kernel_shape")));
  SymbolicShape out = OutputShape((*shape)[0], (*shape)[1], window);
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
