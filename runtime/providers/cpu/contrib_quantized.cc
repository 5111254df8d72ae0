// com.microsoft MatMulIntegerToFloat and DynamicQuantizeMatMul, by plain loops. Source of the
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

float OneFloat(const Tensor* tensor, float fallback) {
  return tensor == nullptr || tensor->ElementCount() < 1 ? fallback : ElementsAs<float>(*tensor)[0];
}

// B's scale and zero point are one number or one per column.
Result<Values> IntegerToFloat(const Node& node, const Shape& a_shape, const std::vector<float>& a,
                              float a_scale, const Tensor& b, const Tensor& b_scale,
                              const Tensor* b_zero, const Tensor* bias, DataType type) {
  const Shape& bs = b.shape();
  if (a_shape.rank() < 1 || bs.rank() != 2 || a_shape[a_shape.rank() - 1] != bs[0]) {
    return Fail(node, StrCat("shapes ", a_shape.ToString(), " and ", bs.ToString(),
                             " cannot be multiplied"));
  }
  const int64_t k = bs[0], n = bs[1], rows = k == 0 ? 0 : static_cast<int64_t>(a.size()) / k;
  const auto scales = ElementsAs<float>(b_scale);
  const auto zeros = b_zero != nullptr ? ElementsAs<float>(*b_zero) : std::vector<float>{0.0f};
  const auto fits = [&](size_t size) { return size == 1 || static_cast<int64_t>(size) == n; };
  if (!fits(scales.size()) || !fits(zeros.size()) ||
      (bias != nullptr && bias->ElementCount() != n)) {
    return Fail(node, "b_scale, b_zero_point or bias do not fit");
  }
  const auto at = [](const std::vector<float>& list, int64_t i) {
    return list[list.size() == 1 ? 0 : static_cast<size_t>(i)];
  };
  const std::vector<float> codes = ElementsAs<float>(b);
  const std::vector<float> offsets =
      bias != nullptr ? ElementsAs<float>(*bias) : std::vector<float>();
  Shape shape = a_shape;
  shape[shape.rank() - 1] = n;
  std::vector<float> out(static_cast<size_t>(shape.ElementCount()));
  std::vector<double> sums(static_cast<size_t>(n));
  for (int64_t row = 0; row < rows; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t p = 0; p < k; ++p) {
      const double left = static_cast<double>(a[static_cast<size_t>(row * k + p)]);
      for (int64_t j = 0; j < n; ++j) {
        sums[static_cast<size_t>(j)] +=
            left * static_cast<double>(codes[static_cast<size_t>(p * n + j)] - at(zeros, j));
      }
    }
    for (int64_t j = 0; j < n; ++j) {
      out[static_cast<size_t>(row * n + j)] =
          static_cast<float>(sums[static_cast<size_t>(j)]) * (a_scale * at(scales, j)) +
          (offsets.empty() ? 0.0f : offsets[static_cast<size_t>(j)]);
    }
  }
  return OneValue(TensorFrom(type, shape, out));
}

Result<Values> MatMulIntegerToFloat(const Node& node, std::span<const Value> inputs,
                                    DataType type) {
  const Tensor& a = inputs[0].tensor();
  const float zero = OneFloat(TensorAt(inputs, 4), 0);
  std::vector<float> centered = ElementsAs<float>(a);
  for (float& value : centered) value -= zero;
  return IntegerToFloat(node, a.shape(), centered, OneFloat(TensorAt(inputs, 2), 1),
                        inputs[1].tensor(), inputs[3].tensor(), TensorAt(inputs, 5),
                        TensorAt(inputs, 6), type);
}

// A is quantized to 8 bits as DynamicQuantizeLinear does it.
Result<Values> DynamicQuantizeMatMul(const Node& node, std::span<const Value> inputs) {
  const Tensor& a = inputs[0].tensor();
  float low = 0, high = 0;
  for (const float value : a.elements<float>()) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const float scale = high == low ? 1.0f : (high - low) / 255.0f;
  const float zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f);
  std::vector<float> codes = ElementsAs<float>(a);
  for (float& code : codes) {
    code = std::clamp(std::nearbyint(code / scale) + zero, 0.0f, 255.0f) - zero;
  }
  return IntegerToFloat(node, a.shape(), codes, scale, inputs[1].tensor(), inputs[2].tensor(),
                        TensorAt(inputs, 3), TensorAt(inputs, 4), DataType::kFloat);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMatMulIntegerToFloat(const KernelInfo& info) {
  if (auto fast = MakeByteMatMulIntegerToFloat(info); fast.ok()) return fast;
  return MakeEagerKernel([type = info.OutputType(0)](const Node& node, std::span<const Value> in) {
    return MatMulIntegerToFloat(node, in, type);
  });
}

Result<std::unique_ptr<Kernel>> MakeDynamicQuantizeMatMul(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType("DynamicQuantizeMatMul", info.InputType(0));
  }
  if (auto fast = MakeByteDynamicQuantizeMatMul(info); fast.ok()) return fast;
  return MakeEagerKernel(DynamicQuantizeMatMul);
}

}  // namespace onnxd
