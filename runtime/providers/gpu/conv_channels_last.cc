// onnxd::ConvChannelsLast with filters [filters, height, width, channels], of one group: products
// whose rows are pixels, gathered from the image, and whose columns are filters. With a filter for
// each channel these are [1, height, width, channels].
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/gpu/activation.h"
#include "runtime/providers/gpu/depthwise_product.h"
#include "runtime/providers/gpu/pointwise_expressions.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {
namespace {

// Where tap p of pixel i is in the image; negative outside. In Dims: image = height, width and
// channels of the input, height and width of the output; window = width, strides, dilations, pads.
constexpr std::string_view kPlaces = R"(
#define DIM(dims, i) ((IX)dims.at[i])
FUNCTION i64 place_of(IX i, IX p, Dims image, Dims window) {
  const IX channel = p % DIM(image, 2), tap = p / DIM(image, 2);
  const IX ow = i % DIM(image, 4), above = i / DIM(image, 4);
  const IX oh = above % DIM(image, 3), picture = above / DIM(image, 3);
  const IX h = oh * DIM(window, 1) - DIM(window, 5) + tap / DIM(window, 0) * DIM(window, 3);
  const IX w = ow * DIM(window, 2) - DIM(window, 6) + tap % DIM(window, 0) * DIM(window, 4);
  if (h < 0 || w < 0 || h >= DIM(image, 0) || w >= DIM(image, 1)) return -1;
  return (((i64)picture * DIM(image, 0) + h) * DIM(image, 1) + w) * DIM(image, 2) + channel;
}
FUNCTION A_C tap_of(GLOBAL const A* a, i64 place) {
  return place < 0 ? (A_C)0 : A_GET(a, place);
}
)";

struct Geometry {
  ProductSizes sizes;
  DeviceDims image, gaps;
  bool is_pointwise = false;  // every tap is the pixel itself
  LibraryConvolution convolution;
  std::optional<DepthwiseWindow> depthwise;
};

DepthwiseWindow DepthwiseOf(const Shape& x, const Window& window) {
  DepthwiseWindow of{x[0], x[1], x[2], window.output[0], window.output[1], {}, {}, {}, {}};
  for (size_t i = 0; i < 2; ++i) {
    of.kernel[i] = window.kernel[i];
    of.strides[i] = window.strides[i];
    of.dilations[i] = window.dilations[i];
    of.pads[i] = window.pads_begin[i];
  }
  return of;
}

Result<Geometry> GeometryOf(const PrepareContext& context, DataType type, bool is_depthwise) {
  const Shape& x = context.InputShape(0);
  const Shape& w = context.InputShape(1);
  if (x.rank() != 4) {
    return Unimplemented(StrCat(Describe(context.node), ": rank ", x.rank(), " is not supported"));
  }
  ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(context.node, {x[1], x[2]}, {w[1], w[2]}));
  Geometry g;
  g.image.values = {x[1], x[2], x[3], window.output[0], window.output[1], 1, 1, 1};
  g.gaps.values = {w[2],
                   window.strides[0],
                   window.strides[1],
                   window.dilations[0],
                   window.dilations[1],
                   window.pads_begin[0],
                   window.pads_begin[1],
                   0};
  g.sizes = {1, x[0] * window.output[0] * window.output[1], w[0], w[1] * w[2] * w[3]};
  if (is_depthwise) {
    if (x[3] != w[3]) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": an image of ", x[3], " channels, filters of ", w[3]));
    }
    g.sizes.n = w[3];
    g.sizes.k = w[1] * w[2];
    g.depthwise = DepthwiseOf(x, window);
    return g;
  }
  g.is_pointwise = true;
  LibraryConvolution& c = g.convolution;
  c.type = type;
  c.channels_last = true;
  c.images = x[0];
  c.channels = x[3];
  c.filters = w[0];
  c.input = c.output = c.kernel = c.strides = c.dilations = {1, 1, 1};
  for (size_t i = 0; i < 2; ++i) {
    const int axis = static_cast<int>(i) + 1;
    c.input[i + 1] = x[axis];
    c.output[i + 1] = window.output[i];
    c.kernel[i + 1] = w[axis];
    c.strides[i + 1] = window.strides[i];
    c.dilations[i + 1] = window.dilations[i];
    c.pads[i + 1] = window.pads_begin[i];
    g.is_pointwise = g.is_pointwise && w[axis] == 1 && window.strides[i] == 1 &&
                     window.pads_begin[i] == 0 && window.output[i] == x[axis];
  }
  return g;
}

ProductText TextOf(DataType type, const Geometry& g) {
  ProductText text;
  text.a = text.b = text.y = type;
  text.accumulator = AccumulatorOf(type);
  if (g.depthwise) {
    text.parameters = "Dims image, Dims gaps, ";
    return text;
  }
  text.b_by_p = text.b_rows = true;
  text.load_b = "B_GET(b, (i64)j * k + p)";
  if (g.is_pointwise) {
    text.a_rows = true;
    text.load_a = "A_GET(a, (i64)i * k + p)";
    return text;
  }
  text.parameters = "Dims image, Dims gaps, ";
  text.functions = kPlaces;
  text.a_place = "place_of(i, p, image, gaps)";
  text.a_run = g.image.values[2];
  text.load_a = StrCat("tap_of(a, ", text.a_place, ")");
  return text;
}

}  // namespace

Result<ProductPlanner> PlanConvChannelsLast(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  const bool is_float =
      type == DataType::kFloat || type == DataType::kFloat16 || type == DataType::kBfloat16;
  const bool has_bias = info.node.input(2) != kNoValue, has_addend = info.node.input(3) != kNoValue;
  if (!is_float || (has_bias && info.InputType(2) != type)) return DeclineOnDevice(info, type);
  const int64_t group = info.node.attributes.Int("group", 1);
  const auto& weights = info.input_types[1].shape;
  const bool is_depthwise = group > 1 && weights && weights->size() == 4 &&
                            (*weights)[0].value == 1 && (*weights)[3].value == group &&
                            IsForDepthwise(info.node.attributes, (*weights)[2].value);
  if ((group != 1 && !is_depthwise) || info.node.attributes.Int("filters_last", 0) == 0) {
    return Unimplemented(StrCat(Describe(info.node), ": groups, or filters with channels first"));
  }
  std::string parameters, sum = "sum";
  if (has_bias) {
    parameters += "GLOBAL const A* bias, ";
    sum += " + A_GET(bias, j)";
  }
  if (has_addend) {
    parameters += "GLOBAL const A* addend, ";
    sum += " + A_GET(addend, (i64)i * n + j)";
  }
  const std::string activation = info.node.attributes.String("activation", "");
  ONNXD_ASSIGN_OR_RETURN(const std::string result,
                         ActivationExpression(info.node, ComputeName(type), StrCat("(", sum, ")")));
  return ProductPlanner([=](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(context, type, is_depthwise));
    ProductText text = TextOf(type, g);
    text.functions += PointwiseFunctions();
    text.parameters += parameters;
    text.result = result == "(sum)" ? "sum" : result;
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      if (!g.is_pointwise) arguments.Value(g.image).Value(g.gaps);
      if (has_bias) arguments.Pointer(k.input<void>(2));
      if (has_addend) arguments.Pointer(k.input<void>(3));
    };
    ProductPlan plan{text, g.sizes, 0, 1, fill};
    plan.depthwise = g.depthwise;
    if (g.depthwise) {
      constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
      if (g.sizes.m > kMost || DepthwiseTileOf(plan).count > kMost) {
        return Unimplemented(StrCat(Describe(context.node), ": images of that size"));
      }
      return plan;
    }
    plan.convolution = g.convolution;
    if (g.is_pointwise) {
      plan.product = LibraryProduct{.operands = type,
                                    .result = type,
                                    .m = g.sizes.m,
                                    .n = g.sizes.n,
                                    .k = g.sizes.k,
                                    .transpose_b = true};
    }
    if (activation.empty() || activation == "Relu") {
      plan.addends = ProductAddends();
      plan.addends->relu = !activation.empty();
      if (has_bias) plan.addends->row = 2;
      if (has_addend) plan.addends->matrix = 3;
    }
    return plan;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuConvChannelsLast(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(ProductPlanner planner, PlanConvChannelsLast(info));
  return MakeProductKernel(device, std::move(planner));
}

}  // namespace onnxd
