// RoiAlign-10 to -22. Points up to one pixel outside of the image read its border.
#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
#define MOST_SAMPLES 4096

FUNCTION i64 samples_of(f32 bin, i64 ratio) {
  if (ratio > 0) return ratio;
  const f32 wanted = ceil(bin);
  return wanted >= 1.0f && wanted <= (f32)MOST_SAMPLES ? (i64)wanted : 0;
}

// x [images, channels, height, width], rois [count, 4], out [count, channels, down, across].
KERNEL roi_align(GLOBAL const X* x, GLOBAL const X* rois, GLOBAL const i64* images,
                 GLOBAL X* out, i64 count, i64 image_count, i64 channels, i64 height, i64 width,
                 i64 down, i64 across, i64 ratio, f32 scale, f32 offset, GLOBAL u32* failure,
                 u32 step) {
  const i64 index = GLOBAL_INDEX;
  if (index >= count) return;
  const i64 px = index % across, py = index / across % down;
  const i64 channel = index / across / down % channels, r = index / across / down / channels;
  i64 image = images[r];
  if (image < 0 || image >= image_count) {
    RAISE(failure, step, 1u, image);
    image = 0;
  }
  const f32 left = (f32)X_GET(rois, r * 4) * scale - offset;
  const f32 top = (f32)X_GET(rois, r * 4 + 1) * scale - offset;
  f32 roi_width = (f32)X_GET(rois, r * 4 + 2) * scale - offset - left;
  f32 roi_height = (f32)X_GET(rois, r * 4 + 3) * scale - offset - top;
  if (offset == 0.0f) {
    roi_width = fmax(roi_width, 1.0f);
    roi_height = fmax(roi_height, 1.0f);
  }
  const f32 bin_height = roi_height / (f32)down, bin_width = roi_width / (f32)across;
  const i64 rows = samples_of(bin_height, ratio), columns = samples_of(bin_width, ratio);
  const i64 plane = (image * channels + channel) * height * width;
  f32 result = 0.0f;
  bool first = true;
  for (i64 i = 0; i < rows; ++i) {
    for (i64 j = 0; j < columns; ++j) {
      f32 y = top + ((f32)py + ((f32)i + 0.5f) / (f32)rows) * bin_height;
      f32 z = left + ((f32)px + ((f32)j + 0.5f) / (f32)columns) * bin_width;
      f32 sum = 0.0f, largest = 0.0f;
      if (y >= -1.0f && y <= (f32)height && z >= -1.0f && z <= (f32)width) {
        y = fmax(y, 0.0f);
        z = fmax(z, 0.0f);
        i64 y0 = (i64)y, x0 = (i64)z, y1 = y0 + 1, x1 = x0 + 1;
        if (y0 >= height - 1) {
          y0 = y1 = height - 1;
          y = (f32)y0;
        }
        if (x0 >= width - 1) {
          x0 = x1 = width - 1;
          z = (f32)x0;
        }
        const f32 ly = y - (f32)y0, lx = z - (f32)x0;
        const f32 a = (1.0f - ly) * (1.0f - lx) * (f32)X_GET(x, plane + y0 * width + x0);
        const f32 b = (1.0f - ly) * lx * (f32)X_GET(x, plane + y0 * width + x1);
        const f32 c = ly * (1.0f - lx) * (f32)X_GET(x, plane + y1 * width + x0);
        const f32 d = ly * lx * (f32)X_GET(x, plane + y1 * width + x1);
        sum = a + b + c + d;
        largest = fmax(fmax(a, b), fmax(c, d));
      }
#if LARGEST
      if (first || largest > result) result = largest;
#else
      result += sum;
#endif
      first = false;
    }
  }
#if !LARGEST
  const i64 points = rows * columns;
  result /= (f32)(points < 1 ? 1 : points);
#endif
  X_PUT(out, index, result);
}
)";

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuRoiAlign(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  const bool floats = IsDeviceType(type) && IsFloatingPoint(type) && type != DataType::kDouble;
  if (!floats || info.InputType(1) != type || info.InputType(2) != DataType::kInt64) {
    return DeclineOnDevice(info, type);
  }
  const Attributes& a = info.node.attributes;
  const int64_t down = a.Int("output_height", 1), across = a.Int("output_width", 1);
  const int64_t ratio = a.Int("sampling_ratio", 0);
  const float scale = a.Float("spatial_scale", 1);
  const std::string fallback = info.node.since_version < 16 ? "output_half_pixel" : "half_pixel";
  const float offset =
      a.String("coordinate_transformation_mode", fallback) == "half_pixel" ? 0.5f : 0.0f;
  const std::string source = StrCat(
      DefineType("X", type), Define("LARGEST", a.String("mode", "avg") == "max" ? 1 : 0), kSource);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    constexpr int64_t kMostSamples = 1 << 12;
    const Shape& x = context.InputShape(0);
    const int64_t rois = context.InputShape(2).ElementCount();
    if (x.rank() != 4 || context.InputShape(1).ElementCount() != rois * 4 || down < 1 ||
        across < 1 || ratio > kMostSamples || (x.ElementCount() == 0 && rois > 0)) {
      return InvalidArgument(StrCat(Describe(context.node), ": X of shape ", x.ToString(),
                                    ", rois or batch_indices do not fit"));
    }
    const int64_t count = rois * x[1] * down * across;
    if (count == 0) return NothingToDo();
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "roi_align"));
    PreparedKernel prepared;
    prepared.on_failure = [name = Describe(context.node), images = x[0]](const DeviceFailure& f) {
      return InvalidArgument(StrCat(name, ": batch index ", f.value, " is outside ", images));
    };
    prepared.compute = [=, images = x[0], channels = x[1], height = x[2],
                        width = x[3]](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(1)).Pointer(k.input<void>(2));
      arguments.Pointer(k.output<void>(0)).Value(count).Value(images).Value(channels);
      arguments.Value(height).Value(width).Value(down).Value(across).Value(ratio);
      arguments.Value(scale).Value(offset);
      arguments.Pointer(k.stream().failure_word()).Value(k.step());
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
