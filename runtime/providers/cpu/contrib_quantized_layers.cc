// com.microsoft QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, QLinearConcat and
// QGemm: dequantized, computed in float, quantized again. Source of the
// semantics: onnxruntime's ContribOperators document.
#include <algorithm>
#include <cmath>

#include "runtime/providers/cpu/eager_kernel.h"
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

std::vector<float> Dequantized(const Tensor& x, const Step& step) {
  std::vector<float> values = ElementsAs<float>(x);
  for (float& value : values) value = (value - step.zero) * step.scale;
  return values;
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

void Softmax(float* row, int64_t count, int64_t stride) {
  float largest = row[0], sum = 0;
  for (int64_t i = 1; i < count; ++i) largest = std::max(largest, row[i * stride]);
  for (int64_t i = 0; i < count; ++i) sum += row[i * stride] = std::exp(row[i * stride] - largest);
  for (int64_t i = 0; i < count; ++i) row[i * stride] /= sum;
}

// X, its scale and zero point, the result's scale and zero point.
Result<Values> Unary(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_ASSIGN_OR_RETURN(const Step from, StepAt(node, inputs, 1, 2));
  ONNXD_ASSIGN_OR_RETURN(const Step to, StepAt(node, inputs, 3, 4));
  std::vector<float> values = Dequantized(x, from);
  Shape shape = x.shape();
  if (node.op_type == "QLinearSigmoid") {
    for (float& value : values) value = 1 / (1 + std::exp(-value));
  } else if (node.op_type == "QLinearLeakyRelu") {
    const float alpha = node.attributes.Float("alpha", 0.01f);
    for (float& value : values) value = value < 0 ? alpha * value : value;
  } else {
    // Before opset 13 the axis splits the shape into rows; from then on it is the one axis.
    const bool rows = node.attributes.Int("opset", 13) < 13;
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(node.attributes.Int("axis", rows ? 1 : -1), shape.rank()));
    const int64_t outer = shape.ElementCount(0, axis);
    const int64_t inner = rows ? 1 : shape.ElementCount(axis + 1, shape.rank());
    const int64_t extent = rows ? shape.ElementCount(axis, shape.rank()) : shape[axis];
    for (int64_t lane = 0; extent > 0 && lane < outer * inner; ++lane) {
      Softmax(values.data() + lane / inner * extent * inner + lane % inner, extent, inner);
    }
  }
  return OneValue(Quantized(x.type(), shape, std::move(values), to));
}

// The result's scale and zero point, then tensors with theirs.
Result<Values> Concat(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const Step to, StepAt(node, inputs, 0, 1));
  if (inputs.size() < 5 || (inputs.size() - 2) % 3 != 0)
    return Fail(node, "operands come in threes");
  const Tensor& first = inputs[2].tensor();
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
  const int64_t outer = shape.ElementCount(0, axis);
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  std::vector<float> out(static_cast<size_t>(shape.ElementCount()));
  int64_t begin = 0;
  for (size_t i = 2; i < inputs.size(); i += 3) {
    ONNXD_ASSIGN_OR_RETURN(const Step from, StepAt(node, inputs, i + 1, i + 2));
    const std::vector<float> part = Dequantized(inputs[i].tensor(), from);
    const int64_t width = inputs[i].tensor().shape()[axis] * inner;
    for (int64_t o = 0; o < outer; ++o) {
      std::copy_n(part.begin() + o * width, width, out.begin() + o * shape[axis] * inner + begin);
    }
    begin += width;
  }
  return OneValue(Quantized(first.type(), shape, std::move(out), to));
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

Result<std::unique_ptr<Kernel>> MakeQuantizedUnary(const KernelInfo&) {
  return MakeEagerKernel(Unary);
}
Result<std::unique_ptr<Kernel>> MakeQuantizedConcat(const KernelInfo&) {
  return MakeEagerKernel(Concat);
}
Result<std::unique_ptr<Kernel>> MakeQGemm(const KernelInfo& info) {
  if (auto fast = MakeByteQGemm(info); fast.ok()) return fast;
  return MakeEagerKernel(QGemm);
}

}  // namespace onnxd
