// Conv, com.microsoft FusedConv, ConvInteger, QLinearConv and ConvTranspose: products over the taps
// of the kernel, whose right side is gathered from the image.
#include <array>

#include "runtime/base/str_cat.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/gpu/activation.h"
#include "runtime/providers/gpu/pointwise_expressions.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {
namespace {

// Spatial axes are seen as three: depth, height, width. In Dims: image = input (3), kernel (3);
// steps = output (3), strides (3); gaps = dilations (3), pads (3), input channels of a group.
struct Geometry {
  ProductSizes sizes;  // batch: images * groups; m: channels of a group; n: pixels; k: taps
  DeviceDims image, steps, gaps;
  int64_t groups = 1, channels = 0;  // input channels of a group
  bool is_pointwise = false;         // every tap is the pixel itself
};

Result<Geometry> GeometryOf(const PrepareContext& context, bool transposed) {
  const Shape& x = context.InputShape(0);
  const Shape& w = context.InputShape(1);
  if (x.rank() < 3 || x.rank() > 5) {
    return Unimplemented(StrCat(Describe(context.node), ": rank ", x.rank(), " is not supported"));
  }
  const std::vector<int64_t> input(x.begin() + 2, x.end()), kernel(w.begin() + 2, w.end());
  ONNXD_ASSIGN_OR_RETURN(const Window window, transposed
                                                  ? TransposedWindow(context.node, input, kernel)
                                                  : PoolWindow(context.node, input, kernel));
  Geometry g;
  for (DeviceDims* dims : {&g.image, &g.steps}) dims->values.fill(1);
  g.gaps.values = {1, 1, 1, 0, 0, 0, 0, 0};
  g.is_pointwise = !transposed;
  int64_t pixels = 1, taps = 1;
  const size_t axes = kernel.size(), shift = 3 - axes;
  for (size_t i = 0; i < axes; ++i) {
    g.image.values[shift + i] = input[i];
    g.image.values[3 + shift + i] = kernel[i];
    g.steps.values[shift + i] = window.output[i];
    g.steps.values[3 + shift + i] = window.strides[i];
    g.gaps.values[shift + i] = window.dilations[i];
    g.gaps.values[3 + shift + i] = window.pads_begin[i];
    pixels *= window.output[i];
    taps *= kernel[i];
    g.is_pointwise = g.is_pointwise && kernel[i] == 1 && window.strides[i] == 1 &&
                     window.pads_begin[i] == 0 && window.output[i] == input[i];
  }
  g.groups = context.node.attributes.Int("group", 1);
  g.channels = x[1] / g.groups;
  g.gaps.values[6] = g.channels;
  const int64_t out_channels = transposed ? w[1] : w[0] / g.groups;
  g.sizes = {x[0] * g.groups, out_channels, pixels, g.channels * taps};
  return g;
}

// The image's element that tap p of output pixel j reads; `zero` outside.
constexpr std::string_view kGather = R"(
#define DIM(dims, i) ((IX)dims.at[i])
#define TAP \
  const IX kw = p % DIM(image, 5), above = p / DIM(image, 5); \
  const IX kh = above % DIM(image, 4), beyond = above / DIM(image, 4); \
  const IX kd = beyond % DIM(image, 3), channel = beyond / DIM(image, 3);
#define PIXEL(j) \
  const IX ow = j % DIM(steps, 2), rows = j / DIM(steps, 2); \
  const IX oh = rows % DIM(steps, 1), od = rows / DIM(steps, 1);

FUNCTION B_C gather(GLOBAL const B* b, IX p, IX ow, IX oh, IX od, Dims image, Dims steps, Dims gaps,
                    B_C zero) {
  TAP
  const IX w = ow * DIM(steps, 5) - DIM(gaps, 5) + kw * DIM(gaps, 2);
  const IX h = oh * DIM(steps, 4) - DIM(gaps, 4) + kh * DIM(gaps, 1);
  const IX d = od * DIM(steps, 3) - DIM(gaps, 3) + kd * DIM(gaps, 0);
  if (w < 0 || h < 0 || d < 0) return zero;
  if (w >= DIM(image, 2) || h >= DIM(image, 1) || d >= DIM(image, 0)) return zero;
  return B_GET(b, (((i64)channel * image.at[0] + d) * image.at[1] + h) * image.at[2] + w);
}

// The other way: what output pixel j takes from input channels by tap p, or nothing.
FUNCTION B_C gather_transposed(GLOBAL const B* b, IX p, IX ow, IX oh, IX od, Dims image, Dims steps,
                               Dims gaps, B_C zero) {
  TAP
  const IX w = ow + DIM(gaps, 5) - kw * DIM(gaps, 2);
  const IX h = oh + DIM(gaps, 4) - kh * DIM(gaps, 1);
  const IX d = od + DIM(gaps, 3) - kd * DIM(gaps, 0);
  if (w < 0 || h < 0 || d < 0) return zero;
  if (w % DIM(steps, 5) != 0 || h % DIM(steps, 4) != 0 || d % DIM(steps, 3) != 0) return zero;
  const IX iw = w / DIM(steps, 5), ih = h / DIM(steps, 4), id = d / DIM(steps, 3);
  if (iw >= DIM(image, 2) || ih >= DIM(image, 1) || id >= DIM(image, 0)) return zero;
  return B_GET(b, (((i64)channel * image.at[0] + id) * image.at[1] + ih) * image.at[2] + iw);
}
)";

constexpr std::string_view kParameters =
    "i64 groups, i64 a_step, i64 b_step, Dims image, Dims steps, Dims gaps, ";
constexpr std::string_view kSetup =
    "const i64 group_of_channels = batch % groups; a += group_of_channels * a_step; "
    "b += batch * b_step;";

void FillGeometry(const Geometry& g, LaunchArguments& arguments) {
  const int64_t a_step = g.sizes.m * g.sizes.k;
  const int64_t plane = g.image.values[0] * g.image.values[1] * g.image.values[2];
  const int64_t b_step = g.channels * plane;
  arguments.Value(g.groups).Value(a_step).Value(b_step);
  arguments.Value(g.image).Value(g.steps).Value(g.gaps);
}

// `pointwise`: taps are pixels.
ProductText TextOf(DataType a, DataType b, DataType y, bool pointwise) {
  ProductText text;
  text.a = a;
  text.b = b;
  text.y = y;
  text.accumulator = AccumulatorOf(a);
  text.parameters = kParameters;
  text.functions = kGather;
  text.setup = kSetup;
  if (!pointwise) text.column = "PIXEL(j)";
  text.load_a = "A_GET(a, (i64)i * k + p)";
  text.a_rows = true;
  text.load_b = pointwise ? "B_GET(b, (i64)p * n + j)"
                          : "gather(b, p, ow, oh, od, image, steps, gaps, (B_C)0)";
  return text;
}

bool IsFloat(DataType type) { return IsDeviceType(type) && IsFloatingPoint(type); }

LibraryConvolution ConvolutionOf(const Geometry& g, DataType type, bool transposed) {
  LibraryConvolution c;
  c.type = type;
  c.transposed = transposed;
  c.images = g.sizes.batch / g.groups;
  c.groups = g.groups;
  c.channels = g.channels;
  c.filters = g.sizes.m;
  for (size_t i = 0; i < 3; ++i) {
    c.input[i] = g.image.values[i];
    c.kernel[i] = g.image.values[3 + i];
    c.output[i] = g.steps.values[i];
    c.strides[i] = g.steps.values[3 + i];
    c.dilations[i] = g.gaps.values[i];
    c.pads[i] = g.gaps.values[3 + i];
  }
  return c;
}

}  // namespace

// Conv, and FusedConv: with an addend of the output's shape as input 3 and an activation.
Result<ProductPlanner> PlanConv(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsFloat(type)) return DeclineOnDevice(info, type);
  const bool has_bias = info.node.input(2) != kNoValue, has_addend = info.node.input(3) != kNoValue;
  std::string parameters, result = "sum";
  if (has_bias) {
    parameters += "GLOBAL const A* bias, ";
    result += " + A_GET(bias, group_of_channels * m + i)";
  }
  if (has_addend) {
    parameters += "GLOBAL const A* addend, ";
    result += " + A_GET(addend, ((i64)batch * m + i) * n + j)";
  }
  ONNXD_ASSIGN_OR_RETURN(
      result, ActivationExpression(info.node, ComputeName(type), StrCat("(", result, ")")));
  if (result == "(sum)") result = "sum";
  return ProductPlanner([=](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(context, false));
    ProductText text = TextOf(type, type, type, g.is_pointwise);
    text.functions += PointwiseFunctions();
    text.parameters += parameters;
    text.result = result;
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      FillGeometry(g, arguments);
      if (has_bias) arguments.Pointer(k.input<void>(2));
      if (has_addend) arguments.Pointer(k.input<void>(3));
    };
    ProductPlan plan{text, g.sizes, 1, 0, fill};
    if (type != DataType::kDouble) plan.convolution = ConvolutionOf(g, type, false);
    if (g.is_pointwise && g.groups == 1 && type != DataType::kDouble) {
      plan.product = LibraryProduct{.operands = type,
                                    .result = type,
                                    .batch = g.sizes.batch,
                                    .m = g.sizes.m,
                                    .n = g.sizes.n,
                                    .k = g.sizes.k,
                                    .b_stride = g.sizes.k * g.sizes.n};
    }
    return plan;
  });
}

// The taps of [in, out, ...] weights are read across their first axis.
Result<ProductPlanner> PlanConvTranspose(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsFloat(type)) return DeclineOnDevice(info, type);
  const bool has_bias = info.node.input(2) != kNoValue;
  ProductText text = TextOf(type, type, type, false);
  text.load_a = "A_GET(a, ((i64)(p / taps) * m + i) * taps + p % taps)";
  text.a_rows = false;
  text.load_b = "gather_transposed(b, p, ow, oh, od, image, steps, gaps, (B_C)0)";
  text.setup += " const IX taps = (IX)(image.at[3] * image.at[4] * image.at[5]);";
  if (has_bias) {
    text.parameters += "GLOBAL const A* bias, ";
    text.result = "sum + A_GET(bias, group_of_channels * m + i)";
  }
  return ProductPlanner([=](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(context, true));
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      FillGeometry(g, arguments);
      if (has_bias) arguments.Pointer(k.input<void>(2));
    };
    ProductPlan plan{text, g.sizes, 1, 0, fill};
    if (type != DataType::kDouble) plan.convolution = ConvolutionOf(g, type, true);
    return plan;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuConv(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(ProductPlanner planner, PlanConv(info));
  return MakeProductKernel(device, std::move(planner));
}

Result<std::unique_ptr<Kernel>> MakeGpuConvTranspose(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(ProductPlanner planner, PlanConvTranspose(info));
  return MakeProductKernel(device, std::move(planner));
}

namespace {

// x less its zero point (what is outside of the image has it, and adds nothing), and weights
// less theirs, of which there may be one per channel.
ProductText ByteText(const KernelInfo& info, DataType w, DataType x, DataType y, size_t x_zero,
                     size_t w_zero) {
  ProductText text = TextOf(w, x, y, false);
  text.parameters += "GLOBAL const B* x_zero, GLOBAL const A* w_zero, i64 w_zeros, ";
  if (!IsZero(info, x_zero)) {
    text.load_b = "gather(b, p, ow, oh, od, image, steps, gaps, x_zero[0])";
    text.b_zero = "(i32)x_zero[0]";
  }
  if (!IsZero(info, w_zero)) {
    text.a_zero = "(i32)w_zero[w_zeros > 1 ? group_of_channels * m + i : 0]";
  }
  return text;
}

// The geometry of a node whose image and weights are inputs 0 and `w`.
Result<Geometry> ByteGeometry(const PrepareContext& context, size_t w) {
  if (w == 1) return GeometryOf(context, false);
  const OperandInfo operands[] = {context.inputs[0], context.inputs[w]};
  return GeometryOf({context.node, operands, context.outputs, context.threads}, false);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuConvInteger(const KernelInfo& info, GpuDevice& device) {
  const ProductText text =
      ByteText(info, info.InputType(1), info.InputType(0), DataType::kInt32, 2, 3);
  return MakeProductKernel(device, [=](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_ASSIGN_OR_RETURN(const Geometry g, ByteGeometry(context, 1));
    const int64_t w_zeros = context.HasInput(3) ? context.InputShape(3).ElementCount() : int64_t{1};
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      FillGeometry(g, arguments);
      arguments.Pointer(k.input<void>(2)).Pointer(k.input<void>(3)).Value(w_zeros);
    };
    return ProductPlan{text, g.sizes, 1, 0, fill};
  });
}

// x, its scale and zero point; w likewise; the scale and zero point of y; a bias.
Result<std::unique_ptr<Kernel>> MakeGpuQLinearConv(const KernelInfo& info, GpuDevice& device) {
  const DataType y = info.OutputType(0);
  const bool has_bias = info.node.input(8) != kNoValue;
  ProductText text = ByteText(info, info.InputType(3), info.InputType(0), y, 2, 5);
  text.functions += PointwiseFunctions();
  text.parameters +=
      "GLOBAL const f32* x_scale, GLOBAL const f32* w_scale, i64 w_scales, "
      "GLOBAL const f32* y_scale, GLOBAL const Y* y_zero, GLOBAL const i32* bias, ";
  if (has_bias) text.result = "sum + bias[group_of_channels * m + i]";
  text.finished = StrCat("truncated_f32_", ComputeName(y),
                         "(rint((f32)value * (x_scale[0] * w_scale[w_scales > 1 ? "
                         "group_of_channels * m + i : 0] / y_scale[0])) + (f32)y_zero[0])");
  return MakeProductKernel(device, [=](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_ASSIGN_OR_RETURN(const Geometry g, ByteGeometry(context, 3));
    const int64_t filters = context.InputShape(3)[0];
    const auto count = [&](size_t i) {
      return context.HasInput(i) ? context.InputShape(i).ElementCount() : int64_t{1};
    };
    const int64_t w_zeros = count(5), w_scales = count(4);
    if (count(1) != 1 || count(6) != 1 || (w_scales != 1 && w_scales != filters) ||
        (w_zeros != 1 && w_zeros != filters) || (has_bias && count(8) != filters)) {
      return InvalidArgument(StrCat(Describe(context.node),
                                    ": a scale, a zero point or the bias has the wrong length"));
    }
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      FillGeometry(g, arguments);
      arguments.Pointer(k.input<void>(2)).Pointer(k.input<void>(5)).Value(w_zeros);
      arguments.Pointer(k.input<void>(1)).Pointer(k.input<void>(4)).Value(w_scales);
      arguments.Pointer(k.input<void>(6)).Pointer(k.input<void>(7)).Pointer(k.input<void>(8));
    };
    return ProductPlan{text, g.sizes, 3, 0, fill};
  });
}

}  // namespace onnxd
