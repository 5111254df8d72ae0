// DeformConv-19, -22, Col2Im-18, CenterCropPad-18, MaxUnpool-9 to -22.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/tensor/axes.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// Shapes of a DeformConv, which fit together.
struct DeformPlan {
  Shape x, w;
  Window window;
  int64_t group, offset_group;

  int64_t taps() const { return w[2] * w[3]; }
  int64_t pixels() const { return window.output[0] * window.output[1]; }
  int64_t plane() const { return x[2] * x[3]; }
};

Result<DeformPlan> PlanOfDeformConv(const Node& node, std::span<const Value> inputs) {
  const Tensor* bias = TensorAt(inputs, 3);
  const Tensor* mask = TensorAt(inputs, 4);
  DeformPlan plan{inputs[0].tensor().shape(), inputs[1].tensor().shape(), {}, 1, 1};
  const Shape &xs = plan.x, &ws = plan.w;
  if (xs.rank() != 4) {
    return Unimplemented(StrCat(Describe(node), ": only two spatial axes are supported"));
  }
  plan.group = node.attributes.Int("group", 1);
  plan.offset_group = node.attributes.Int("offset_group", 1);
  if (ws.rank() != 4 || plan.group < 1 || plan.offset_group < 1 || ws[1] * plan.group != xs[1] ||
      ws[0] % plan.group != 0 || xs[1] % plan.offset_group != 0) {
    return InvalidArgument(StrCat(Describe(node), ": X of shape ", xs.ToString(),
                                  " and W of shape ", ws.ToString(), " do not match"));
  }
  ONNXD_ASSIGN_OR_RETURN(plan.window, PoolWindow(node, {xs[2], xs[3]}, {ws[2], ws[3]}));
  const int64_t oh = plan.window.output[0], ow = plan.window.output[1];
  const Shape wanted{xs[0], plan.offset_group * plan.taps() * 2, oh, ow};
  const Shape mask_shape{xs[0], plan.offset_group * plan.taps(), oh, ow};
  if (!(inputs[2].tensor().shape() == wanted) ||
      (mask != nullptr && !(mask->shape() == mask_shape)) ||
      (bias != nullptr && bias->ElementCount() != ws[0])) {
    return InvalidArgument(StrCat(Describe(node), ": offset, mask or B do not fit; offset must be ",
                                  wanted.ToString()));
  }
  return plan;
}

// What a tap of an output pixel sees: pixels of the image and their shares.
struct Corners {
  size_t count = 0;  // those inside of the image
  std::array<int64_t, 4> at;
  std::array<double, 4> weights;
};

Corners CornersOf(double y, double x, int64_t height, int64_t width, double weight) {
  Corners corners{};
  if (!(y > -1 && y < static_cast<double>(height) && x > -1 && x < static_cast<double>(width))) {
    return corners;
  }
  const double top = std::floor(y), left = std::floor(x), down = y - top, right = x - left;
  for (size_t i = 0; i < 4; ++i) {
    const int64_t row = static_cast<int64_t>(top) + static_cast<int64_t>(i / 2);
    const int64_t column = static_cast<int64_t>(left) + static_cast<int64_t>(i % 2);
    if (row < 0 || row >= height || column < 0 || column >= width) continue;
    corners.at[corners.count] = row * width + column;
    corners.weights[corners.count++] =
        (i / 2 == 0 ? 1 - down : down) * (i % 2 == 0 ? 1 - right : right) * weight;
  }
  return corners;
}

// The corners of one tap of the offset group `lane` at an output pixel.
template <typename T>
Corners CornersAt(const DeformPlan& plan, const Tensor& offset, const Tensor* mask, int64_t lane,
                  int64_t tap, int64_t pixel) {
  const int64_t pixels = plan.pixels(), ow = plan.window.output[1], at = lane * plan.taps() + tap;
  const T* shift = offset.data<T>() + at * 2 * pixels + pixel;
  const auto position = [&](size_t axis, int64_t output, int64_t step, T moved) {
    return static_cast<double>(output * plan.window.strides[axis] - plan.window.pads_begin[axis] +
                               step * plan.window.dilations[axis]) +
           static_cast<double>(moved);
  };
  const double weight =
      mask != nullptr ? static_cast<double>(mask->data<T>()[at * pixels + pixel]) : 1.0;
  return CornersOf(position(0, pixel / ow, tap / plan.w[3], shift[0]),
                   position(1, pixel % ow, tap % plan.w[3], shift[pixels]), plan.x[2], plan.x[3],
                   weight);
}

// The windows of `count` output pixels from `first` on as rows [count, channels * taps].
template <typename T>
void SampleWindows(const DeformPlan& plan, std::span<const Value> inputs, int64_t image,
                   int64_t first, int64_t count, T* rows) {
  const int64_t taps = plan.taps(), width = plan.x[1] * taps;
  const int64_t channels = plan.x[1] / plan.offset_group;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t g = 0; g < plan.offset_group; ++g) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const Corners corners = CornersAt<T>(plan, inputs[2].tensor(), TensorAt(inputs, 4),
                                             image * plan.offset_group + g, tap, first + i);
        std::array<T, 4> weights{};
        for (size_t j = 0; j < corners.count; ++j) weights[j] = static_cast<T>(corners.weights[j]);
        const T* plane =
            inputs[0].tensor().data<T>() + (image * plan.x[1] + g * channels) * plan.plane();
        T* to = rows + i * width + g * channels * taps + tap;
        for (int64_t c = 0; c < channels; ++c, plane += plan.plane(), to += taps) {
          if (corners.count < 4) {
            *to = 0;
            for (size_t j = 0; j < corners.count; ++j) *to += weights[j] * plane[corners.at[j]];
            continue;
          }
          *to = weights[0] * plane[corners.at[0]] + weights[1] * plane[corners.at[1]] +
                weights[2] * plane[corners.at[2]] + weights[3] * plane[corners.at[3]];
        }
      }
    }
  }
}

// rows[count, k of all groups] by the weights of each group, W[out, k], into [count, out].
void MultiplyWindows(const DeformPlan& plan, const float* rows, int64_t count, const float* weights,
                     std::vector<float>& packed, float* sums) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t k = plan.w[1] * plan.taps(), out = plan.w[0] / plan.group;
  const int64_t panel = math::PackedBSize(simd, k, out);
  if (packed.empty()) {
    packed.resize(static_cast<size_t>(panel * plan.group));
    for (int64_t g = 0; g < plan.group; ++g) {
      simd.pack_b(weights + g * out * k, k, true, k, out, packed.data() + g * panel);
    }
  }
  for (int64_t g = 0; g < plan.group; ++g) {
    simd.gemm({count, out, k, rows + g * k, k * plan.group, packed.data() + g * panel,
               sums + g * out, plan.w[0]});
  }
}

void MultiplyWindows(const DeformPlan& plan, const double* rows, int64_t count,
                     const double* weights, std::vector<float>&, double* sums) {
  const int64_t k = plan.w[1] * plan.taps(), out = plan.w[0] / plan.group;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t f = 0; f < plan.w[0]; ++f) {
      const double* row = rows + (i * plan.group + f / out) * k;
      sums[i * plan.w[0] + f] = std::inner_product(row, row + k, weights + f * k, 0.0);
    }
  }
}

// Windows of some pixels at a time as rows of a matrix, by the weights.
template <typename T>
Result<Values> DeformConv(const Node& node, std::span<const Value> inputs) {
  constexpr int64_t kPixels = 48;
  ONNXD_ASSIGN_OR_RETURN(const DeformPlan plan, PlanOfDeformConv(node, inputs));
  const Tensor& x = inputs[0].tensor();
  const Tensor* bias = TensorAt(inputs, 3);
  const int64_t pixels = plan.pixels(), filters = plan.w[0];
  ONNXD_ASSIGN_OR_RETURN(Tensor out,
                         Tensor::Create(x.type(), Shape{plan.x[0], filters, plan.window.output[0],
                                                        plan.window.output[1]}));
  std::vector<T> rows(static_cast<size_t>(kPixels * plan.x[1] * plan.taps()));
  std::vector<T> sums(static_cast<size_t>(kPixels * filters));
  std::vector<float> packed;
  for (int64_t image = 0; image < plan.x[0]; ++image) {
    for (int64_t first = 0; first < pixels; first += kPixels) {
      const int64_t count = std::min(kPixels, pixels - first);
      SampleWindows(plan, inputs, image, first, count, rows.data());
      MultiplyWindows(plan, rows.data(), count, inputs[1].tensor().data<T>(), packed, sums.data());
      for (int64_t f = 0; f < filters; ++f) {
        const T added = bias != nullptr ? bias->data<T>()[f] : T{0};
        T* to = out.mutable_data<T>() + (image * filters + f) * pixels + first;
        for (int64_t i = 0; i < count; ++i) {
          to[i] = sums[static_cast<size_t>(i * filters + f)] + added;
        }
      }
    }
  }
  return Values{std::move(out)};
}

// Adds the columns of an unfolded image back to the pixels they came from.
// Of one image of two axes: patches[tap, position] are added to where they were taken from.
template <typename T>
void AddPatches(const Window& window, const std::vector<int64_t>& image,
                const std::vector<int64_t>& block, const T* patches, T* out) {
  const int64_t rows = window.output[0], columns = window.output[1], stride = window.strides[1];
  for (int64_t tap = 0; tap < block[0] * block[1]; ++tap) {
    const int64_t top = tap / block[1] * window.dilations[0] - window.pads_begin[0];
    const int64_t left = tap % block[1] * window.dilations[1] - window.pads_begin[1];
    // Columns whose pixel is inside of the image.
    const int64_t first = left < 0 ? (-left + stride - 1) / stride : 0;
    const int64_t room = image[1] - 1 - left;
    const int64_t end = room < 0 ? 0 : std::min(columns, room / stride + 1);
    for (int64_t row = 0; row < rows; ++row, patches += columns) {
      const int64_t y = row * window.strides[0] + top;
      if (y < 0 || y >= image[0] || first >= end) continue;
      T* to = out + y * image[1] + left + first * stride;
      const T* from = patches + first;
      if constexpr (std::is_same_v<T, float>) {
        if (stride == 1) {
          math::CurrentSimd().binary(math::Binary::kAdd, to, from, to, end - first, 1, 1);
          continue;
        }
      }
      for (int64_t i = 0; i < end - first; ++i) to[i * stride] += from[i];
    }
  }
}

template <typename T>
Result<Values> Col2Im(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const auto image = ElementsAs<int64_t>(inputs[1].tensor());
  const auto block = ElementsAs<int64_t>(inputs[2].tensor());
  if (image.empty() || image.size() != block.size()) {
    return InvalidArgument(StrCat(Describe(node), ": image_shape and block_shape do not match"));
  }
  for (const int64_t extent : image) {
    if (extent < 1 || extent > (int64_t{1} << 30)) {
      return InvalidArgument(StrCat(Describe(node), ": an image extent of ", extent));
    }
  }
  ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(node, image, block));
  const Shape positions(window.output), taps(block), image_shape(image);
  ONNXD_RETURN_IF_ERROR(image_shape.Validate());
  const int64_t tap_count = taps.ElementCount(), count = positions.ElementCount();
  if (x.shape().rank() != 3 || x.shape()[1] % tap_count != 0 || x.shape()[2] != count) {
    return InvalidArgument(StrCat(Describe(node), ": input of shape ", x.shape().ToString(),
                                  " does not fit ", count, " positions of ", tap_count, " taps"));
  }
  const int64_t channels = x.shape()[1] / tap_count, plane = image_shape.ElementCount();
  std::vector<int64_t> dims = {x.shape()[0], channels};
  dims.insert(dims.end(), image.begin(), image.end());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), Shape(dims)));
  std::fill_n(out.mutable_data<T>(), out.ElementCount(), T(0));
  if (image.size() == 2) {
    for (int64_t lane = 0; lane < x.shape()[0] * channels; ++lane) {
      AddPatches(window, image, block, x.data<T>() + lane * tap_count * count,
                 out.mutable_data<T>() + lane * plane);
    }
    return Values{std::move(out)};
  }
  for (int64_t t = 0; t < tap_count; ++t) {
    for (int64_t p = 0; p < count; ++p) {
      int64_t tap = t, position = p, at = 0, stride = 1;
      for (size_t axis = image.size(); axis-- > 0 && at >= 0;) {
        const int64_t own = position % window.output[axis] * window.strides[axis] -
                            window.pads_begin[axis] + tap % block[axis] * window.dilations[axis];
        position /= window.output[axis];
        tap /= block[axis];
        at = own < 0 || own >= image[axis] ? -1 : at + own * stride;
        stride *= image[axis];
      }
      if (at < 0) continue;
      for (int64_t lane = 0; lane < x.shape()[0] * channels; ++lane) {
        out.mutable_data<T>()[lane * plane + at] += x.data<T>()[(lane * tap_count + t) * count + p];
      }
    }
  }
  return Values{std::move(out)};
}

Result<Values> CenterCropPad(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const auto wanted = ElementsAs<int64_t>(inputs[1].tensor());
  std::vector<int64_t> axes = node.attributes.Ints("axes");
  if (axes.empty()) {
    for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  }
  if (axes.size() != wanted.size()) {
    return InvalidArgument(StrCat(Describe(node), ": shape has ", wanted.size(), " entries"));
  }
  Shape shape = x.shape();
  // Where the copied region begins in the input and in the output.
  std::vector<int64_t> from(shape.dims().size(), 0), to(shape.dims().size(), 0);
  Shape common = shape;
  ONNXD_ASSIGN_OR_RETURN(const auto normal, NormalizeAxes(axes, shape.rank()));
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = normal[i];
    const auto at = static_cast<size_t>(axis);
    const int64_t have = x.shape()[axis], want = wanted[i];
    shape[axis] = want;
    common[axis] = std::min(have, want);
    if (want < have) from[at] = (have - want) / 2;
    if (want > have) to[at] = (want - have) / 2;
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  if (!IsMovable(x.type())) return DeclineType("CenterCropPad", x.type());
  if (out.bytes() > 0) std::memset(out.mutable_raw(), 0, out.bytes());
  const std::vector<int64_t> in_strides = DenseStrides(x.shape()),
                             out_strides = DenseStrides(shape);
  int64_t in_at = 0, out_at = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    in_at += from[i] * in_strides[i];
    out_at += to[i] * out_strides[i];
  }
  StridedLoop<2> loop;
  loop.dims = common.dims();
  loop.strides = {out_strides, in_strides};
  loop.Merge();
  const auto width = static_cast<size_t>(DataTypeBits(x.type()) / 8);
  const auto bytes = static_cast<int64_t>(width);
  if (common.ElementCount() > 0) {
    CopyStrided(loop, width, static_cast<std::byte*>(out.mutable_raw()) + out_at * bytes,
                static_cast<const std::byte*>(x.raw()) + in_at * bytes);
  }
  return Values{std::move(out)};
}

// Puts each maximum back where MaxPool's Indices say it stood; indices count in the tensor that
// MaxPool saw, whose extents are those that the window implies.
Result<Values> MaxUnpool(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& indices = inputs[1].tensor();
  const auto kernel = node.attributes.Ints("kernel_shape");
  const auto strides = node.attributes.Ints("strides");
  const auto pads = node.attributes.Ints("pads");
  const size_t axes = kernel.size();
  if (x.shape().rank() != static_cast<int>(axes) + 2 || !(indices.shape() == x.shape())) {
    return InvalidArgument(StrCat(Describe(node), ": X of shape ", x.shape().ToString(),
                                  " and I of shape ", indices.shape().ToString()));
  }
  std::vector<int64_t> implied = {x.shape()[0], x.shape()[1]};
  for (size_t i = 0; i < axes; ++i) {
    implied.push_back((x.shape()[static_cast<int>(i) + 2] - 1) *
                          (i < strides.size() ? strides[i] : 1) +
                      kernel[i] - (pads.size() == 2 * axes ? pads[i] + pads[axes + i] : 0));
  }
  std::vector<int64_t> dims = implied;
  if (const Tensor* wanted = TensorAt(inputs, 2)) dims = ElementsAs<int64_t>(*wanted);
  const Shape shape(dims), pooled(implied);
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  ONNXD_RETURN_IF_ERROR(pooled.Validate());
  if (dims.size() != implied.size()) {
    return InvalidArgument(StrCat(Describe(node), ": output_shape has the wrong length"));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  if (out.bytes() > 0) std::memset(out.mutable_raw(), 0, out.bytes());
  const std::vector<int64_t> pooled_strides = DenseStrides(pooled),
                             out_strides = DenseStrides(shape);
  Status status;
  const bool known = DispatchWidth(x.type(), [&]<typename T>() {
    for (int64_t i = 0; i < x.ElementCount(); ++i) {
      const int64_t index = indices.data<int64_t>()[i];
      if (index < 0 || index >= pooled.ElementCount()) {
        status = InvalidArgument(StrCat(Describe(node), ": index ", index, " is out of range"));
        return;
      }
      int64_t at = 0;
      bool inside = true;
      for (int d = 0; d < shape.rank(); ++d) {
        const auto dim = static_cast<size_t>(d);
        const int64_t position = index / pooled_strides[dim] % pooled[d];
        inside = inside && position < shape[d];
        at += position * out_strides[dim];
      }
      if (inside) out.mutable_data<T>()[at] = x.data<T>()[i];
    }
  });
  if (!known) return DeclineType("MaxUnpool", x.type());
  ONNXD_RETURN_IF_ERROR(status);
  return Values{std::move(out)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeDeformConv(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kDouble) return MakeEagerKernel(DeformConv<double>);
  if (info.InputType(0) == DataType::kFloat) return MakeEagerKernel(DeformConv<float>);
  return DeclineType("DeformConv", info.InputType(0));
}

Result<std::unique_ptr<Kernel>> MakeCol2Im(const KernelInfo& info) {
  std::unique_ptr<Kernel> kernel;
  DispatchNumber(info.InputType(0), [&]<typename T>() { kernel = MakeEagerKernel(Col2Im<T>); });
  if (kernel == nullptr) return DeclineType("Col2Im", info.InputType(0));
  return kernel;
}

Result<std::unique_ptr<Kernel>> MakeCenterCropPad(const KernelInfo&) {
  return MakeEagerKernel(CenterCropPad);
}

Result<std::unique_ptr<Kernel>> MakeMaxUnpool(const KernelInfo&) {
  return MakeEagerKernel(MaxUnpool);
}

}  // namespace onnxd
