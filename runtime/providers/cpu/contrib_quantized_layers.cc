// com.microsoft QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, QLinearConcat and QGemm:
// dequantized, computed in float, quantized again; where a result depends on one byte alone, from a
// table. Source of the semantics: onnxruntime's ContribOperators document.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/quantization.h"
#include "runtime/providers/cpu/quantized_matmul.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

Status Fail(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

// Scale and zero point of a whole tensor.
struct Step {
  float scale = 1, zero = 0;
};

Result<Step> StepAt(const Node& node, std::span<const Value> inputs, size_t scale, size_t zero) {
  Step step;
  const Tensor* s = TensorAt(inputs, scale);
  const Tensor* z = TensorAt(inputs, zero);
  if (s == nullptr || s->ElementCount() != 1 || (z != nullptr && z->ElementCount() != 1)) {
    return Fail(node, "scales and zero points must be one number each");
  }
  step.scale = ElementsAs<float>(*s)[0];
  if (z != nullptr) step.zero = ElementsAs<float>(*z)[0];
  return step;
}

Result<Tensor> Quantized(DataType type, const Shape& shape, std::vector<float> values,
                         const Step& step) {
  const bool is_signed = type == DataType::kInt8;
  const float low = is_signed ? -128.0f : 0.0f, high = is_signed ? 127.0f : 255.0f;
  for (float& value : values) {
    value = std::clamp(std::nearbyint(value / step.scale) + step.zero, low, high);
  }
  return TensorFrom(type, shape, values);
}

// What a function makes of each of the codes that bytes have.
class ByteTable {
 public:
  template <typename Function>
  ByteTable(DataType type, const Step& from, const Step& to, Function function) {
    const bool is_signed = type == DataType::kInt8;
    std::array<float, 256> values;
    for (size_t code = 0; code < values.size(); ++code) {
      const auto byte = static_cast<uint8_t>(code);
      values[code] = function((ByteAt(&byte, is_signed) - from.zero) * from.scale);
    }
    math::CurrentSimd().quantize(values.data(), {is_signed, to.scale, to.zero}, codes_.data(), 256);
  }

  void Map(const uint8_t* x, uint8_t* out, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) out[i] = codes_[x[i]];
  }

 private:
  std::array<uint8_t, 256> codes_;
};

const uint8_t* BytesOf(const Tensor& x) { return static_cast<const uint8_t*>(x.raw()); }
uint8_t* BytesOf(Tensor& x) { return static_cast<uint8_t*>(x.mutable_raw()); }

Status CheckBytes(const Node& node, const Tensor& x) {
  if (IsByte(x.type())) return Status::Ok();
  return Unimplemented(StrCat(Describe(node), ": elements of ", DataTypeName(x.type())));
}

// X, its scale and zero point, the result's scale and zero point.
Result<Values> Unary(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_RETURN_IF_ERROR(CheckBytes(node, x));
  ONNXD_ASSIGN_OR_RETURN(const Step from, StepAt(node, inputs, 1, 2));
  ONNXD_ASSIGN_OR_RETURN(const Step to, StepAt(node, inputs, 3, 4));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), x.shape()));
  const float alpha = node.attributes.Float("alpha", 0.01f);
  const bool is_sigmoid = node.op_type == "QLinearSigmoid";
  const ByteTable table(x.type(), from, to, [&](float value) {
    if (is_sigmoid) return 1 / (1 + std::exp(-value));
    return value < 0 ? alpha * value : value;
  });
  table.Map(BytesOf(x), BytesOf(out), x.ElementCount());
  return Values{std::move(out)};
}

// Of bytes, whose differences to the largest one are powers from a table.
class ByteSoftmax {
 public:
  ByteSoftmax(DataType type, const Step& from, const Step& to)
      : is_signed_(type == DataType::kInt8), to_(to) {
    for (size_t d = 0; d < powers_.size(); ++d) {
      powers_[d] = std::exp(-from.scale * static_cast<float>(d));
    }
  }

  void Run(const uint8_t* x, int64_t count, int64_t stride, uint8_t* out) {
    row_.resize(static_cast<size_t>(count));
    bytes_.resize(static_cast<size_t>(count));
    const uint8_t flip = is_signed_ ? 0x80 : 0;  // codes in the order of their numbers
    uint8_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto code = static_cast<uint8_t>(x[i * stride] ^ flip);
      bytes_[static_cast<size_t>(i)] = code;
      largest = std::max(largest, code);
    }
    for (size_t i = 0; i < row_.size(); ++i) row_[i] = powers_[largest - bytes_[i]];
    const math::Simd& simd = math::CurrentSimd();
    const float sum = simd.sum(row_.data(), count);
    simd.binary(math::Binary::kDiv, row_.data(), &sum, row_.data(), count, 1, 0);
    simd.quantize(row_.data(), {is_signed_, to_.scale, to_.zero}, bytes_.data(), count);
    for (int64_t i = 0; i < count; ++i) out[i * stride] = bytes_[static_cast<size_t>(i)];
  }

 private:
  bool is_signed_;
  Step to_;
  std::array<float, 256> powers_;
  std::vector<float> row_;
  std::vector<uint8_t> bytes_;
};

// Before opset 13 the axis splits the shape into rows; from then on it is the one axis.
Result<Values> Softmax(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  ONNXD_RETURN_IF_ERROR(CheckBytes(node, x));
  ONNXD_ASSIGN_OR_RETURN(const Step from, StepAt(node, inputs, 1, 2));
  ONNXD_ASSIGN_OR_RETURN(const Step to, StepAt(node, inputs, 3, 4));
  const bool rows = node.attributes.Int("opset", 13) < 13;
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("axis", rows ? 1 : -1), shape.rank()));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  const int64_t outer = shape.ElementCount(0, axis);
  const int64_t inner = rows ? 1 : shape.ElementCount(axis + 1, shape.rank());
  const int64_t extent = rows ? shape.ElementCount(axis, shape.rank()) : shape[axis];
  ByteSoftmax softmax(x.type(), from, to);
  for (int64_t lane = 0; extent > 0 && lane < outer * inner; ++lane) {
    const int64_t at = lane / inner * extent * inner + lane % inner;
    softmax.Run(BytesOf(x) + at, extent, inner, BytesOf(out) + at);
  }
  return Values{std::move(out)};
}

// The result's scale and zero point, then tensors with theirs.
Result<Values> Concat(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Step to, StepAt(node, inputs, 0, 1));
  if (inputs.size() < 5 || (inputs.size() - 2) % 3 != 0) {
    return Fail(node, "operands come in threes");
  }
  const Tensor& first = inputs[2].tensor();
  ONNXD_RETURN_IF_ERROR(CheckBytes(node, first));
  Shape shape = first.shape();
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("axis", 0), shape.rank()));
  shape[axis] = 0;
  for (size_t i = 2; i < inputs.size(); i += 3) {
    const Shape& own = inputs[i].tensor().shape();
    bool fits = own.rank() == shape.rank() && inputs[i].tensor().type() == first.type();
    for (int d = 0; fits && d < shape.rank(); ++d) fits = d == axis || own[d] == shape[d];
    if (!fits) return Fail(node, StrCat("operand ", i, " does not match the first"));
    shape[axis] += own[axis];
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(first.type(), shape));
  const int64_t outer = shape.ElementCount(0, axis);
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  uint8_t* begin = BytesOf(out);
  for (size_t i = 2; i < inputs.size(); i += 3) {
    ONNXD_ASSIGN_OR_RETURN(const Step from, StepAt(node, inputs, i + 1, i + 2));
    const ByteTable table(first.type(), from, to, [](float value) { return value; });
    const bool same = from.scale == to.scale && from.zero == to.zero;
    const uint8_t* part = BytesOf(inputs[i].tensor());
    const int64_t width = inputs[i].tensor().shape()[axis] * inner;
    for (int64_t o = 0; o < outer; ++o, part += width) {
      uint8_t* at = begin + o * shape[axis] * inner;
      same ? static_cast<void>(std::copy_n(part, width, at)) : table.Map(part, at, width);
    }
    begin += width;
  }
  return Values{std::move(out)};
}

// A, a_scale, a_zero, B, b_scale, b_zero, C (int32), y_scale, y_zero; float without y_scale.
Result<Values> QGemm(const Node& node, std::span<const Value> inputs) {
  const Tensor& a = inputs[0].tensor();
  const Tensor& b = inputs[3].tensor();
  const Tensor* c = TensorAt(inputs, 6);
  if (a.shape().rank() != 2 || b.shape().rank() != 2) return Fail(node, "A and B must be matrices");
  const bool across_a = node.attributes.Int("transA", 0) != 0;
  const bool across_b = node.attributes.Int("transB", 0) != 0;
  const int64_t m = a.shape()[across_a ? 1 : 0], k = a.shape()[across_a ? 0 : 1];
  const int64_t n = b.shape()[across_b ? 0 : 1];
  if (b.shape()[across_b ? 1 : 0] != k) return Fail(node, "A and B do not match");
  ONNXD_ASSIGN_OR_RETURN(const Step step_a, StepAt(node, inputs, 1, 2));
  const auto scales = ElementsAs<float>(inputs[4].tensor());
  const Tensor* zero_tensor = TensorAt(inputs, 5);
  const auto zeros =
      zero_tensor != nullptr ? ElementsAs<int32_t>(*zero_tensor) : std::vector<int32_t>{0};
  const auto fits = [&](size_t size) { return size == 1 || static_cast<int64_t>(size) == n; };
  if (!fits(scales.size()) || !fits(zeros.size())) return Fail(node, "b_scale or b_zero_point");
  const int64_t c_count = c == nullptr ? 0 : c->ElementCount();
  if (c != nullptr && c_count != 1 && c_count != n && c_count != m * n) return Fail(node, "C");
  const float alpha = node.attributes.Float("alpha", 1);
  const std::vector<int32_t> x = ElementsAs<int32_t>(a), y = ElementsAs<int32_t>(b);
  std::vector<float> out(static_cast<size_t>(m * n));
  const auto zero_a = static_cast<int32_t>(step_a.zero);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const int32_t zero_b = zeros[zeros.size() == 1 ? 0 : static_cast<size_t>(j)];
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        const int32_t left = x[static_cast<size_t>(across_a ? p * m + i : i * k + p)] - zero_a;
        const int32_t right = y[static_cast<size_t>(across_b ? j * k + p : p * n + j)] - zero_b;
        sum += int64_t{left} * right;
      }
      if (c != nullptr) {
        sum += c->data<int32_t>()[c_count == 1 ? 0 : c_count == n ? j : i * n + j];
      }
      out[static_cast<size_t>(i * n + j)] = static_cast<float>(sum) * alpha * step_a.scale *
                                            scales[scales.size() == 1 ? 0 : static_cast<size_t>(j)];
    }
  }
  const Shape shape{m, n};
  if (TensorAt(inputs, 7) == nullptr) return OneValue(TensorFrom(DataType::kFloat, shape, out));
  ONNXD_ASSIGN_OR_RETURN(const Step to, StepAt(node, inputs, 7, 8));
  return OneValue(Quantized(a.type(), shape, std::move(out), to));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeQuantizedUnary(const KernelInfo& info) {
  return MakeEagerKernel(info.node.op_type == "QLinearSoftmax" ? Softmax : Unary);
}
Result<std::unique_ptr<Kernel>> MakeQuantizedConcat(const KernelInfo&) {
  return MakeEagerKernel(Concat);
}
Result<std::unique_ptr<Kernel>> MakeQGemm(const KernelInfo& info) {
  if (auto fast = MakeByteQGemm(info); fast.ok()) return fast;
  return MakeEagerKernel(QGemm);
}

}  // namespace onnxd
