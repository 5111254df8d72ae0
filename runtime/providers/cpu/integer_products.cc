// MatMulInteger-10, QLinearMatMul-10 to -21, ConvInteger-10 and QLinearConv-10: products of 8-bit
// integers summed in 32 bits.
#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/quantization.h"
#include "runtime/providers/cpu/quantized_matmul.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// Sums wrap around, as 32-bit hardware does; real files hold biases at the type's limit.
int32_t Plus(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

constexpr int64_t kMaxTaps = int64_t{1} << 28;  // of one convolution, over all output pixels

// A matrix operand, or a batch of them, minus its zero point: one, or one per row (A) or column
// (B).
struct Operand {
  std::vector<int32_t> elements;
  Shape shape;  // rank >= 2
};

Result<Operand> Centered(const Node& node, const Tensor& tensor, const Tensor* zero_point,
                         bool per_row) {
  Operand operand{ElementsAs<int32_t>(tensor), tensor.shape()};
  if (tensor.shape().rank() == 1) {
    operand.shape = per_row ? Shape{1, tensor.shape()[0]} : Shape{tensor.shape()[0], 1};
  }
  if (zero_point == nullptr) return operand;
  const std::vector<int32_t> zeros = ElementsAs<int32_t>(*zero_point);
  const int rank = operand.shape.rank();
  const int64_t rows = operand.shape[rank - 2], columns = operand.shape[rank - 1];
  const int64_t matrix = std::max<int64_t>(rows * columns, 1);
  const int64_t lanes = per_row ? rows : columns;
  const auto count = static_cast<int64_t>(zeros.size());
  const int64_t matrices = static_cast<int64_t>(operand.elements.size()) / matrix;
  if (count != 1 && count != lanes && count != matrices * lanes) {
    return InvalidArgument(StrCat(Describe(node), ": zero point of shape ",
                                  zero_point->shape().ToString(), " does not fit ",
                                  tensor.shape().ToString()));
  }
  if (count == 1) {
    for (int32_t& element : operand.elements) element -= zeros[0];
    return operand;
  }
  for (size_t i = 0; i < operand.elements.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t lane = per_row ? at % matrix / std::max<int64_t>(columns, 1) : at % columns;
    const int64_t zero = count == lanes ? lane : at / matrix * lanes + lane;
    operand.elements[i] -= zeros[static_cast<size_t>(zero)];
  }
  return operand;
}

// Products of bytes less their zero points by loops over floats, a part of the depth at a time, so
// that each sum of a part is a whole number below 2^24: exact.
class ExactProduct {
 public:
  ExactProduct(const Operand& a, const Operand& b)
      : a_(a.elements.begin(), a.elements.end()), b_(b.elements.begin(), b.elements.end()) {}

  static constexpr int64_t kPart = (1 << 24) / (255 * 255);

  // out[m, n] += a[m, depth] * b[depth, n], which begin at those elements.
  void Add(int64_t a, int64_t b, int64_t m, int64_t n, int64_t depth, int32_t* out) {
    const math::Simd& simd = math::CurrentSimd();
    packed_.resize(static_cast<size_t>(math::PackedBSize(simd, std::min(depth, kPart), n)));
    sums_.resize(static_cast<size_t>(m * n));
    for (int64_t first = 0; first < depth; first += kPart) {
      const int64_t count = std::min(kPart, depth - first);
      simd.pack_b(b_.data() + b + first * n, n, false, count, n, packed_.data());
      simd.gemm({m, n, count, a_.data() + a + first, depth, packed_.data(), sums_.data(), n});
      for (int64_t i = 0; i < m * n; ++i) {
        out[i] = Plus(out[i], static_cast<int32_t>(sums_[static_cast<size_t>(i)]));
      }
    }
  }

 private:
  std::vector<float> a_, b_, packed_, sums_;
};

struct Sums {
  std::vector<int32_t> elements;
  Shape shape;  // numpy's result of matmul
  int64_t rows, columns;
};

// numpy's matmul of a batch of matrices [m, depth] and [depth, n].
struct BatchedProduct {
  int64_t m, depth, n;
  Shape batch, out;
  StridedLoop<3> loop;  // over the batch: matrices of the result, of A and of B

  // product(i, a, b) for each matrix of the result, in order, and those that it is made of.
  template <typename Product>
  void ForMatrices(const Product& product) const {
    int64_t matrix = 0;
    loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 3>& at) {
      for (int64_t i = 0; i < loop.inner_count(); ++i) {
        product(matrix++, at[1] + i * loop.inner_stride(1), at[2] + i * loop.inner_stride(2));
      }
    });
  }
};

// `a_given`, `b_given`: the shapes, which may be of vectors; a vector stands for a row, or a
// column.
Result<BatchedProduct> BatchOf(const Node& node, const Shape& a_given, const Shape& b_given) {
  if (a_given.rank() == 0 || b_given.rank() == 0) {
    return InvalidArgument(StrCat(Describe(node), ": a scalar is no matrix"));
  }
  const Shape a = a_given.rank() == 1 ? Shape{1, a_given[0]} : a_given;
  const Shape b = b_given.rank() == 1 ? Shape{b_given[0], 1} : b_given;
  const int ra = a.rank(), rb = b.rank();
  BatchedProduct z{a[ra - 2], a[ra - 1], b[rb - 1], {}, {}, {}};
  if (b[rb - 2] != z.depth) {
    return InvalidArgument(StrCat(Describe(node), ": shapes ", a_given.ToString(), " and ",
                                  b_given.ToString(), " cannot be multiplied"));
  }
  const Shape batch_a(std::vector<int64_t>(a.begin(), a.end() - 2));
  const Shape batch_b(std::vector<int64_t>(b.begin(), b.end() - 2));
  const int rank = std::max(batch_a.rank(), batch_b.rank());
  std::vector<int64_t> batch(static_cast<size_t>(rank), 1);
  for (int i = 0; i < rank; ++i) {
    const int64_t x = i < rank - batch_a.rank() ? 1 : batch_a[i - (rank - batch_a.rank())];
    const int64_t y = i < rank - batch_b.rank() ? 1 : batch_b[i - (rank - batch_b.rank())];
    batch[static_cast<size_t>(i)] = x == 1 ? y : x;
  }
  z.batch = z.out = Shape(batch);
  z.loop = BroadcastLoop<2>(z.batch, {&batch_a, &batch_b});
  if (a_given.rank() != 1) z.out.Append(z.m);
  if (b_given.rank() != 1) z.out.Append(z.n);
  return z;
}

Result<Sums> Multiply(const Node& node, const Operand& a, const Operand& b, const Shape& a_given,
                      const Shape& b_given) {
  ONNXD_ASSIGN_OR_RETURN(const BatchedProduct z, BatchOf(node, a_given, b_given));
  Sums sums{{}, z.out, z.m, z.n};
  sums.elements.assign(static_cast<size_t>(z.batch.ElementCount() * z.m * z.n), 0);
  ExactProduct exact(a, b);
  z.ForMatrices([&](int64_t i, int64_t at_a, int64_t at_b) {
    int32_t* out = sums.elements.data() + i * z.m * z.n;
    if (z.m * z.n == 0) return;
    exact.Add(at_a * z.m * z.depth, at_b * z.depth * z.n, z.m, z.n, z.depth, out);
  });
  return sums;
}

Result<std::vector<Value>> MatMulInteger(const Node& node, std::span<const Value> inputs) {
  const Tensor& a = inputs[0].tensor();
  const Tensor& b = inputs[1].tensor();
  ONNXD_ASSIGN_OR_RETURN(const Operand left, Centered(node, a, TensorAt(inputs, 2), true));
  ONNXD_ASSIGN_OR_RETURN(const Operand right, Centered(node, b, TensorAt(inputs, 3), false));
  ONNXD_ASSIGN_OR_RETURN(const Sums sums, Multiply(node, left, right, a.shape(), b.shape()));
  return OneValue(TensorFrom(DataType::kInt32, sums.shape, sums.elements));
}

// saturate(round(sum * scale) + zero), the scale per lane when there are several.
Result<Tensor> Requantize(const std::vector<int32_t>& sums, const Shape& shape,
                          const std::vector<float>& scales, int64_t lanes, int64_t inner,
                          const Tensor& zero_point) {
  const double zero = ElementsAs<double>(zero_point).at(0);
  const bool is_signed = zero_point.type() == DataType::kInt8;
  if (scales.size() == 1 && IsByte(zero_point.type())) {
    ONNXD_ASSIGN_OR_RETURN(Tensor bytes, Tensor::Create(zero_point.type(), shape));
    std::vector<float> scaled(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) scaled[i] = static_cast<float>(sums[i]) * scales[0];
    math::CurrentSimd().quantize(scaled.data(), {is_signed, 1.0f, static_cast<float>(zero)},
                                 static_cast<uint8_t*>(bytes.mutable_raw()),
                                 static_cast<int64_t>(sums.size()));
    return bytes;
  }
  const double low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
  std::vector<int32_t> out(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto lane = static_cast<size_t>(static_cast<int64_t>(i) / inner % lanes);
    const float scaled = static_cast<float>(sums[i]) * scales[scales.size() == 1 ? 0 : lane];
    const double rounded = std::nearbyint(static_cast<double>(scaled)) + zero;
    out[i] = Truncated<int32_t>(std::clamp(rounded, low, high));
  }
  return TensorFrom(zero_point.type(), shape, out);
}

// What QLinearMatMul's scales and zero points are where each is one number.
struct ByteFormats {
  math::Quantization a, b, y;  // a's and b's scales are 1; what is left of them is in `scale`
  float scale;
};

std::optional<ByteFormats> FormatsOf(std::span<const Value> inputs) {
  for (const size_t i : {1, 2, 4, 5, 6, 7}) {
    if (inputs[i].tensor().ElementCount() != 1) return std::nullopt;
  }
  const auto zero = [&](size_t i) { return ElementsAs<float>(inputs[i].tensor())[0]; };
  const auto is_signed = [&](size_t i) { return inputs[i].tensor().type() == DataType::kInt8; };
  for (const size_t i : {0, 3, 7}) {
    if (!IsByte(inputs[i].tensor().type())) return std::nullopt;
  }
  return ByteFormats{{is_signed(0), 1.0f, zero(2)},
                     {is_signed(3), 1.0f, zero(5)},
                     {is_signed(7), 1.0f, zero(7)},
                     zero(1) * zero(4) / zero(6)};
}

// Matrix by matrix, of a depth whose sums floats hold exactly.
Result<std::vector<Value>> MultiplyBytes(const BatchedProduct& z, const ByteFormats& formats,
                                         std::span<const Value> inputs) {
  const math::Simd& simd = math::CurrentSimd();
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(inputs[7].tensor().type(), z.out));
  const auto* a = static_cast<const uint8_t*>(inputs[0].tensor().raw());
  const auto* b = static_cast<const uint8_t*>(inputs[3].tensor().raw());
  auto* y = static_cast<uint8_t*>(out.mutable_raw());
  std::vector<float> left(static_cast<size_t>(z.m * z.depth)),
      right(static_cast<size_t>(z.depth * z.n)), sums(static_cast<size_t>(z.m * z.n)),
      packed(static_cast<size_t>(math::PackedBSize(simd, z.depth, z.n)));
  z.ForMatrices([&](int64_t i, int64_t at_a, int64_t at_b) {
    if (z.m * z.n == 0) return;
    simd.dequantize(a + at_a * z.m * z.depth, formats.a, left.data(), z.m * z.depth);
    simd.dequantize(b + at_b * z.depth * z.n, formats.b, right.data(), z.depth * z.n);
    simd.pack_b(right.data(), z.n, false, z.depth, z.n, packed.data());
    simd.gemm({z.m, z.n, z.depth, left.data(), z.depth, packed.data(), sums.data(), z.n});
    simd.affine(sums.data(), sums.data(), z.m * z.n, formats.scale, 0.0f);
    simd.quantize(sums.data(), formats.y, y + i * z.m * z.n, z.m * z.n);
  });
  return std::vector<Value>{std::move(out)};
}

Result<std::vector<Value>> QLinearMatMul(const Node& node, std::span<const Value> inputs) {
  const Tensor& a = inputs[0].tensor();
  const Tensor& b = inputs[3].tensor();
  if (const auto formats = FormatsOf(inputs)) {
    ONNXD_ASSIGN_OR_RETURN(const BatchedProduct z, BatchOf(node, a.shape(), b.shape()));
    if (z.depth <= ExactProduct::kPart) return MultiplyBytes(z, *formats, inputs);
  }
  ONNXD_ASSIGN_OR_RETURN(const Operand left, Centered(node, a, TensorAt(inputs, 2), true));
  ONNXD_ASSIGN_OR_RETURN(const Operand right, Centered(node, b, TensorAt(inputs, 5), false));
  ONNXD_ASSIGN_OR_RETURN(const Sums sums, Multiply(node, left, right, a.shape(), b.shape()));
  const auto scale_a = ElementsAs<float>(inputs[1].tensor());
  auto scales = ElementsAs<float>(inputs[4].tensor());
  const auto scale_y = ElementsAs<float>(inputs[6].tensor());
  if (scale_a.size() != 1 || scale_y.size() != 1) {
    return Unimplemented(StrCat(Describe(node), ": scales per row are not supported"));
  }
  if (scales.size() != 1 && static_cast<int64_t>(scales.size()) != sums.columns) {
    return InvalidArgument(StrCat(Describe(node), ": b_scale has the wrong length"));
  }
  for (float& scale : scales) scale = scale_a[0] * scale / scale_y[0];
  return OneValue(
      Requantize(sums.elements, sums.shape, scales, sums.columns, 1, inputs[7].tensor()));
}

// One convolution: x[batch, channels, spatial...], w[out, channels / group, kernel...], both
// without their zero points.
Result<Sums> Convolve(const Node& node, const std::vector<int32_t>& x, const Shape& x_shape,
                      const std::vector<int32_t>& w, const Shape& w_shape) {
  const int64_t group = node.attributes.Int("group", 1);
  if (x_shape.rank() < 3 || w_shape.rank() != x_shape.rank() || group < 1 ||
      w_shape[1] * group != x_shape[1] || w_shape[0] % group != 0) {
    return InvalidArgument(StrCat(Describe(node), ": input ", x_shape.ToString(), " and weights ",
                                  w_shape.ToString(), " do not match"));
  }
  const std::vector<int64_t> spatial(x_shape.begin() + 2, x_shape.end());
  const std::vector<int64_t> kernel(w_shape.begin() + 2, w_shape.end());
  ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(node, spatial, kernel));
  const Shape out_plane(window.output), in_plane(spatial), taps(kernel);
  const size_t axes = spatial.size();
  const int64_t pixels = out_plane.ElementCount(), tap_count = taps.ElementCount();
  const int64_t plane = in_plane.ElementCount();
  const int64_t channels = w_shape[1], filters = w_shape[0];
  if (pixels > kMaxTaps / std::max<int64_t>(tap_count, 1)) {
    return ResourceExhausted(StrCat(Describe(node), ": ", pixels, " outputs of ", tap_count,
                                    " taps are more than it works on"));
  }
  // Input position of every tap of every output pixel; -1 in the padding, whose value is the zero
  // point, that is 0 here.
  std::vector<int64_t> source(static_cast<size_t>(pixels * tap_count));
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t t = 0; t < tap_count; ++t) {
      int64_t pixel = p, tap = t, at = 0, stride = 1;
      for (size_t axis = axes; axis-- > 0 && at >= 0;) {
        const int64_t position = pixel % window.output[axis] * window.strides[axis] -
                                 window.pads_begin[axis] +
                                 tap % kernel[axis] * window.dilations[axis];
        pixel /= window.output[axis];
        tap /= kernel[axis];
        at = position < 0 || position >= spatial[axis] ? -1 : at + position * stride;
        stride *= spatial[axis];
      }
      source[static_cast<size_t>(p * tap_count + t)] = at;
    }
  }
  Sums sums{{}, Shape{x_shape[0], filters}, filters, pixels};
  for (const int64_t extent : window.output) sums.shape.Append(extent);
  ONNXD_RETURN_IF_ERROR(sums.shape.Validate());
  sums.elements.assign(static_cast<size_t>(sums.shape.ElementCount()), 0);
  for (int64_t b = 0; b < x_shape[0]; ++b) {
    for (int64_t f = 0; f < filters; ++f) {
      const int64_t first = f / (filters / group) * channels;
      int32_t* out = sums.elements.data() + (b * filters + f) * pixels;
      for (int64_t c = 0; c < channels; ++c) {
        const int32_t* in = x.data() + (b * x_shape[1] + first + c) * plane;
        const int32_t* weights = w.data() + (f * channels + c) * tap_count;
        for (int64_t p = 0; p < pixels; ++p) {
          for (int64_t t = 0; t < tap_count; ++t) {
            const int64_t at = source[static_cast<size_t>(p * tap_count + t)];
            if (at >= 0) out[p] = Plus(out[p], in[at] * weights[t]);
          }
        }
      }
    }
  }
  return sums;
}

// Subtracts a zero point, or one per slice of the first axis.
Status Center(const Node& node, std::vector<int32_t>& elements, const Shape& shape,
              const Tensor* zero_point) {
  if (zero_point == nullptr) return Status::Ok();
  const auto zeros = ElementsAs<int32_t>(*zero_point);
  const int64_t slice = std::max<int64_t>(shape.ElementCount(1, shape.rank()), 1);
  if (zeros.size() != 1 && static_cast<int64_t>(zeros.size()) != shape[0]) {
    return InvalidArgument(StrCat(Describe(node), ": zero point has the wrong length"));
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    elements[i] -= zeros[zeros.size() == 1 ? 0 : i / static_cast<size_t>(slice)];
  }
  return Status::Ok();
}

Result<Sums> CenteredConvolution(const Node& node, const Tensor& x, const Tensor* x_zero,
                                 const Tensor& w, const Tensor* w_zero) {
  auto input = ElementsAs<int32_t>(x);
  auto weights = ElementsAs<int32_t>(w);
  if (x_zero != nullptr && x_zero->ElementCount() != 1) {
    return InvalidArgument(StrCat(Describe(node), ": the input's zero point must be one number"));
  }
  ONNXD_RETURN_IF_ERROR(Center(node, input, x.shape(), x_zero));
  ONNXD_RETURN_IF_ERROR(Center(node, weights, w.shape(), w_zero));
  return Convolve(node, input, x.shape(), weights, w.shape());
}

Result<std::vector<Value>> ConvInteger(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Sums sums,
                         CenteredConvolution(node, inputs[0].tensor(), TensorAt(inputs, 2),
                                             inputs[1].tensor(), TensorAt(inputs, 3)));
  return OneValue(TensorFrom(DataType::kInt32, sums.shape, sums.elements));
}

Result<std::vector<Value>> QLinearConv(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(Sums sums,
                         CenteredConvolution(node, inputs[0].tensor(), TensorAt(inputs, 2),
                                             inputs[3].tensor(), TensorAt(inputs, 5)));
  if (const Tensor* bias = TensorAt(inputs, 8)) {
    if (bias->ElementCount() != sums.rows) {
      return InvalidArgument(StrCat(Describe(node), ": the bias has the wrong length"));
    }
    for (size_t i = 0; i < sums.elements.size(); ++i) {
      const auto lane = static_cast<int64_t>(i) / sums.columns % sums.rows;
      sums.elements[i] = Plus(sums.elements[i], bias->data<int32_t>()[lane]);
    }
  }
  auto scales = ElementsAs<float>(inputs[4].tensor());
  const auto scale_x = ElementsAs<float>(inputs[1].tensor());
  const auto scale_y = ElementsAs<float>(inputs[6].tensor());
  if (scale_x.size() != 1 || scale_y.size() != 1 ||
      (scales.size() != 1 && static_cast<int64_t>(scales.size()) != sums.rows)) {
    return InvalidArgument(StrCat(Describe(node), ": a scale has the wrong length"));
  }
  for (float& scale : scales) scale = scale_x[0] * scale / scale_y[0];
  return OneValue(
      Requantize(sums.elements, sums.shape, scales, sums.rows, sums.columns, inputs[7].tensor()));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMatMulInteger(const KernelInfo& info) {
  if (auto fast = MakeByteMatMulInteger(info); fast.ok()) return fast;
  return MakeEagerKernel(MatMulInteger);
}
Result<std::unique_ptr<Kernel>> MakeQLinearMatMul(const KernelInfo& info) {
  if (auto fast = MakeByteQLinearMatMul(info); fast.ok()) return fast;
  return MakeEagerKernel(QLinearMatMul);
}
Result<std::unique_ptr<Kernel>> MakeConvInteger(const KernelInfo&) {
  return MakeEagerKernel(ConvInteger);
}
Result<std::unique_ptr<Kernel>> MakeQLinearConv(const KernelInfo&) {
  return MakeEagerKernel(QLinearConv);
}

}  // namespace onnxd
