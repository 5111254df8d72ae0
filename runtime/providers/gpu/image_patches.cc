// DeformConv-19, -22 and Col2Im-18.
#include "runtime/base/str_cat.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {
namespace {

// What tap p of output pixel (oh, ow) sees, between the pixels around where its offset leads. In
// Dims: sizes = image, kernel and output (2 each); window = strides, pads and dilations (2 each),
// channels of a group, and those that share offsets.
constexpr std::string_view kDeformed = R"(
FUNCTION f32 pixel_at(GLOBAL const f32* plane, i64 row, i64 column, i64 height, i64 width) {
  if (row < 0 || column < 0 || row >= height || column >= width) return 0.0f;
  return plane[row * width + column];
}

FUNCTION f32 deformed(GLOBAL const f32* b, GLOBAL const f32* offset, GLOBAL const f32* mask, i64 p,
                      i64 ow, i64 oh, i64 of_image, i64 group, i64 offset_groups, Dims sizes,
                      Dims window) {
  const i64 height = sizes.at[0], width = sizes.at[1];
  const i64 taps = sizes.at[2] * sizes.at[3], pixels = sizes.at[4] * sizes.at[5];
  const i64 tap = p % taps, channel = p / taps, pixel = oh * sizes.at[5] + ow;
  const i64 shared = (group * window.at[6] + channel) / window.at[7];
  const i64 at = (of_image * offset_groups + shared) * taps + tap;
  const f32 y = (f32)(oh * window.at[0] - window.at[2] + tap / sizes.at[3] * window.at[4]) +
                offset[at * 2 * pixels + pixel];
  const f32 x = (f32)(ow * window.at[1] - window.at[3] + tap % sizes.at[3] * window.at[5]) +
                offset[(at * 2 + 1) * pixels + pixel];
  if (!(y > -1.0f && y < (f32)height && x > -1.0f && x < (f32)width)) return 0.0f;
  const f32 top = floor(y), left = floor(x), down = y - top, right = x - left;
  const i64 row = (i64)top, column = (i64)left;
  GLOBAL const f32* plane = b + channel * height * width;
  const f32 seen =
      (1.0f - down) * ((1.0f - right) * pixel_at(plane, row, column, height, width) +
                       right * pixel_at(plane, row, column + 1, height, width)) +
      down * ((1.0f - right) * pixel_at(plane, row + 1, column, height, width) +
              right * pixel_at(plane, row + 1, column + 1, height, width));
#if HAS_MASK
  return seen * mask[at * pixels + pixel];
#else
  return seen;
#endif
}
)";

struct DeformSizes {
  ProductSizes sizes;
  DeviceDims shapes, window;
  int64_t groups, offset_groups;
};

Result<DeformSizes> DeformSizesOf(const PrepareContext& context) {
  const Node& node = context.node;
  const Shape &x = context.InputShape(0), &w = context.InputShape(1);
  if (x.rank() != 4) {
    return Unimplemented(StrCat(Describe(node), ": only two spatial axes are supported"));
  }
  DeformSizes d{};
  d.groups = node.attributes.Int("group", 1);
  d.offset_groups = node.attributes.Int("offset_group", 1);
  if (w.rank() != 4 || d.groups < 1 || d.offset_groups < 1 || w[1] * d.groups != x[1] ||
      w[0] % d.groups != 0 || x[1] % d.offset_groups != 0) {
    return InvalidArgument(StrCat(Describe(node), ": X of shape ", x.ToString(), " and W of shape ",
                                  w.ToString(), " do not match"));
  }
  ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(node, {x[2], x[3]}, {w[2], w[3]}));
  const int64_t taps = w[2] * w[3], oh = window.output[0], ow = window.output[1];
  const Shape wanted{x[0], d.offset_groups * taps * 2, oh, ow};
  const Shape of_mask{x[0], d.offset_groups * taps, oh, ow};
  if (!(context.InputShape(2) == wanted) ||
      (context.HasInput(3) && context.InputShape(3).ElementCount() != w[0]) ||
      (context.HasInput(4) && !(context.InputShape(4) == of_mask))) {
    return InvalidArgument(StrCat(Describe(node), ": offset, mask or B do not fit; offset must be ",
                                  wanted.ToString()));
  }
  d.sizes = {x[0] * d.groups, w[0] / d.groups, oh * ow, w[1] * taps};
  d.shapes.values = {x[2], x[3], w[2], w[3], oh, ow};
  d.window.values = {window.strides[0],
                     window.strides[1],
                     window.pads_begin[0],
                     window.pads_begin[1],
                     window.dilations[0],
                     window.dilations[1],
                     w[1],
                     x[1] / d.offset_groups};
  return d;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuDeformConv(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (type != DataType::kFloat) return DeclineOnDevice(info, type);
  const bool has_bias = info.node.input(3) != kNoValue, has_mask = info.node.input(4) != kNoValue;
  ProductText text;
  text.a = text.b = text.y = type;
  text.accumulator = AccumulatorOf(type);
  text.functions = StrCat(Define("HAS_MASK", has_mask ? 1 : 0), kDeformed);
  text.parameters =
      "GLOBAL const f32* offset, GLOBAL const f32* mask, GLOBAL const f32* bias, i64 groups, "
      "i64 offset_groups, Dims shapes, Dims window, ";
  text.setup =
      "const i64 group_of_channels = batch % groups; a += group_of_channels * m * k; "
      "b += batch * window.at[6] * shapes.at[0] * shapes.at[1];";
  text.column = "const i64 ow = j % shapes.at[5], oh = j / shapes.at[5];";
  text.load_a = "A_GET(a, (i64)i * k + p)";
  text.a_rows = true;
  text.load_b =
      "deformed(b, offset, mask, p, ow, oh, batch / groups, group_of_channels, offset_groups, "
      "shapes, window)";
  if (has_bias) text.result = "sum + bias[group_of_channels * m + i]";
  return MakeProductKernel(device, [text](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_ASSIGN_OR_RETURN(const DeformSizes d, DeformSizesOf(context));
    const auto fill = [d](const KernelContext& k, LaunchArguments& arguments) {
      for (const size_t i : {2, 4, 3}) arguments.Pointer(k.input<void>(i));
      arguments.Value(d.groups).Value(d.offset_groups).Value(d.shapes).Value(d.window);
    };
    return ProductPlan{text, d.sizes, 1, 0, fill};
  });
}

namespace {

// The sum of what patches have for one pixel. Three spatial axes: sizes = image and taps, steps =
// positions and strides, gaps = dilations and pads (3 each).
constexpr std::string_view kPatches = R"(
KERNEL sum_patches(GLOBAL const X* x, GLOBAL X* y, i64 count, Dims sizes, Dims steps, Dims gaps) {
  const i64 index = GLOBAL_INDEX;
  if (index >= count) return;
  const i64 taps = sizes.at[3] * sizes.at[4] * sizes.at[5];
  const i64 positions = steps.at[0] * steps.at[1] * steps.at[2];
  i64 place[3];
  i64 rest = index;
  for (i32 axis = 2; axis >= 0; --axis) {
    place[axis] = rest % sizes.at[axis] + gaps.at[3 + axis];
    rest /= sizes.at[axis];
  }
  X_C sum = (X_C)0;
  for (i64 tap = 0; tap < taps; ++tap) {
    i64 of_axis = tap, at = 0, step = 1;
    for (i32 axis = 2; axis >= 0; --axis) {
      const i64 from = place[axis] - of_axis % sizes.at[3 + axis] * gaps.at[axis];
      of_axis /= sizes.at[3 + axis];
      const i64 position = from / steps.at[3 + axis];
      const bool meets = from >= 0 && from % steps.at[3 + axis] == 0 && position < steps.at[axis];
      at = meets && at >= 0 ? at + position * step : -1;
      step *= steps.at[axis];
    }
    if (at >= 0) sum += X_GET(x, (rest * taps + tap) * positions + at);
  }
  X_PUT(y, index, sum);
}
)";

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuCol2Im(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsDeviceType(type) || !IsFloatingPoint(type)) return DeclineOnDevice(info, type);
  const std::string source = StrCat(DefineType("X", type), kPatches);
  return MakeGpuKernel(
      [source, &device](const PrepareContext& context) -> Result<PreparedKernel> {
        const auto fail = [&](std::string_view why) {
          return InvalidArgument(StrCat(Describe(context.node), ": ", why));
        };
        ONNXD_ASSIGN_OR_RETURN(const auto image, KnownInts(context, 1, "", {}));
        ONNXD_ASSIGN_OR_RETURN(const auto block, KnownInts(context, 2, "", {}));
        if (image.empty() || image.size() != block.size()) {
          return fail("image_shape and block_shape do not match");
        }
        if (image.size() > 3) return Unimplemented("Col2Im of more than three axes");
        for (const int64_t extent : image) {
          if (extent < 1 || extent > (int64_t{1} << 30))
            return fail("an image extent is out of range");
        }
        ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(context.node, image, block));
        DeviceDims sizes, steps, gaps;
        sizes.values.fill(1);
        steps.values.fill(1);
        gaps.values = {1, 1, 1};
        int64_t taps = 1, positions = 1;
        for (size_t i = 0, to = 3 - image.size(); i < image.size(); ++i, ++to) {
          sizes.values[to] = image[i];
          sizes.values[3 + to] = block[i];
          steps.values[to] = window.output[i];
          steps.values[3 + to] = window.strides[i];
          gaps.values[to] = window.dilations[i];
          gaps.values[3 + to] = window.pads_begin[i];
          taps *= block[i];
          positions *= window.output[i];
        }
        const Shape& x = context.InputShape(0);
        if (x.rank() != 3 || x[1] % taps != 0 || x[2] != positions) {
          return fail(StrCat("input of shape ", x.ToString(), " does not fit ", positions,
                             " positions of ", taps, " taps"));
        }
        const int64_t count = context.OutputShape(0).ElementCount();
        if (count == 0) return NothingToDo();
        ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "sum_patches"));
        PreparedKernel prepared;
        prepared.compute = [=](const KernelContext& k) {
          LaunchArguments arguments;
          arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0)).Value(count);
          arguments.Value(sizes).Value(steps).Value(gaps);
          return Launch(k, kernel, LaunchGrid::Over(count), arguments);
        };
        return prepared;
      },
      {1, 2});
}

}  // namespace onnxd
