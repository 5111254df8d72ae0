// DeformConv-19, -22, Col2Im-18, CenterCropPad-18, MaxUnpool-9 to -22.
#include <algorithm>
#include <cstring>

#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/sampling.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

template <typename T>
Result<Values> DeformConv(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& w = inputs[1].tensor();
  const Tensor& offset = inputs[2].tensor();
  const Tensor* bias = TensorAt(inputs, 3);
  const Tensor* mask = TensorAt(inputs, 4);
  const Shape& xs = x.shape();
  const Shape& ws = w.shape();
  if (xs.rank() != 4) {
    return Unimplemented(StrCat(Describe(node), ": only two spatial axes are supported"));
  }
  const int64_t group = node.attributes.Int("group", 1);
  const int64_t offset_group = node.attributes.Int("offset_group", 1);
  if (ws.rank() != 4 || group < 1 || offset_group < 1 || ws[1] * group != xs[1] ||
      ws[0] % group != 0 || xs[1] % offset_group != 0) {
    return InvalidArgument(StrCat(Describe(node), ": X of shape ", xs.ToString(),
                                  " and W of shape ", ws.ToString(), " do not match"));
  }
  ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(node, {xs[2], xs[3]}, {ws[2], ws[3]}));
  const int64_t oh = window.output[0], ow = window.output[1], taps = ws[2] * ws[3];
  const Shape wanted{xs[0], offset_group * taps * 2, oh, ow};
  const Shape mask_shape{xs[0], offset_group * taps, oh, ow};
  if (!(offset.shape() == wanted) || (mask != nullptr && !(mask->shape() == mask_shape)) ||
      (bias != nullptr && bias->ElementCount() != ws[0])) {
    return InvalidArgument(StrCat(Describe(node), ": offset, mask or B do not fit; offset must be ",
                                  wanted.ToString()));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), Shape{xs[0], ws[0], oh, ow}));
  const int64_t plane = xs[2] * xs[3], pixels = oh * ow;
  std::vector<double> sampled(static_cast<size_t>(xs[1] * taps));
  for (int64_t b = 0; b < xs[0]; ++b) {
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t c = 0; c < xs[1]; ++c) {
        const int64_t g = c / (xs[1] / offset_group);
        for (int64_t t = 0; t < taps; ++t) {
          const int64_t lane = (b * offset_group + g) * taps + t;
          const T* shift = offset.data<T>() + lane * 2 * pixels + p;
          const double y = static_cast<double>(p / ow * window.strides[0] - window.pads_begin[0] +
                                               t / ws[3] * window.dilations[0]) +
                           static_cast<double>(shift[0]);
          const double z = static_cast<double>(p % ow * window.strides[1] - window.pads_begin[1] +
                                               t % ws[3] * window.dilations[1]) +
                           static_cast<double>(shift[pixels]);
          const double weight =
              mask != nullptr ? static_cast<double>(mask->data<T>()[lane * pixels + p]) : 1.0;
          sampled[static_cast<size_t>(c * taps + t)] =
              weight * BilinearWithZeros(x.data<T>() + (b * xs[1] + c) * plane, xs[2], xs[3], y, z);
        }
      }
      for (int64_t f = 0; f < ws[0]; ++f) {
        const int64_t first = f / (ws[0] / group) * ws[1];
        double sum = bias != nullptr ? static_cast<double>(bias->data<T>()[f]) : 0.0;
        for (int64_t i = 0; i < ws[1] * taps; ++i) {
          sum += static_cast<double>(w.data<T>()[f * ws[1] * taps + i]) *
                 sampled[static_cast<size_t>(first * taps + i)];
        }
        out.mutable_data<T>()[(b * ws[0] + f) * pixels + p] = static_cast<T>(sum);
      }
    }
  }
  return Values{std::move(out)};
}

// Adds the columns of an unfolded image back to the pixels they came from.
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
  for (size_t i = 0; i < axes.size(); ++i) {
    ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes[i], shape.rank()));
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
