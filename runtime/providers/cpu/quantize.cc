// QuantizeLinear-10 to -25 and DequantizeLinear-10 to -25 of any types and blocks; what is usual is
// left to quantize_bytes.cc.
#include <algorithm>
#include <cmath>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/quantize_bytes.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// Which scale belongs to an element: one for all, one per slice of an axis, or one per block of
// `block` neighbours along the axis.
struct ScaleMap {
  int64_t outer = 1, extent = 1, inner = 1;
  int64_t block = 0;   // 0: no blocks
  int64_t blocks = 1;  // along the axis
  bool single = true;

  // Calls body(element, scale) for all elements.
  template <typename Body>
  void ForEach(Body body) const {
    int64_t element = 0;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t a = 0; a < extent; ++a) {
        for (int64_t i = 0; i < inner; ++i, ++element) {
          const int64_t scale = single ? 0 : block == 0 ? a : (o * blocks + a / block) * inner + i;
          body(element, scale);
        }
      }
    }
  }
};

Result<ScaleMap> MapScales(const Node& node, const Shape& x, const Shape& scale,
                           const Tensor* zero_point) {
  const auto fail = [&] {
    return InvalidArgument(StrCat(Describe(node), ": scale of shape ", scale.ToString(),
                                  " does not fit the input of shape ", x.ToString()));
  };
  if (zero_point != nullptr && zero_point->ElementCount() != scale.ElementCount()) return fail();
  ScaleMap map;
  if (scale.ElementCount() == 1 && node.attributes.Int("block_size", 0) == 0) {
    map.extent = x.ElementCount();
    return map;
  }
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(node.attributes.Int("axis", 1), x.rank()));
  map.single = false;
  map.outer = x.ElementCount(0, axis);
  map.extent = x[axis];
  map.inner = x.ElementCount(axis + 1, x.rank());
  map.block = node.attributes.Int("block_size", 0);
  if (map.block == 0) {
    if (scale.rank() != 1 || scale[0] != map.extent) return fail();
    return map;
  }
  if (map.block < 0 || scale.rank() != x.rank()) return fail();
  map.blocks = (map.extent + map.block - 1) / map.block;
  for (int i = 0; i < x.rank(); ++i) {
    if (scale[i] != (i == axis ? map.blocks : x[i])) return fail();
  }
  return map;
}

// Limits of an integer type, packed ones included.
std::pair<double, double> LimitsOf(DataType type) {
  const int bits = DataTypeBits(type);
  const bool is_signed = type == DataType::kInt8 || type == DataType::kInt16 ||
                         type == DataType::kInt4 || type == DataType::kInt2 ||
                         type == DataType::kInt32;
  if (is_signed) return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
  return {0.0, std::ldexp(1.0, bits) - 1};
}

Result<std::vector<Value>> Quantize(const Node& node, std::span<const Value> inputs, DataType to) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& scale_tensor = inputs[1].tensor();
  const Tensor* zero_point = TensorAt(inputs, 2);
  ONNXD_ASSIGN_OR_RETURN(const ScaleMap map,
                         MapScales(node, x.shape(), scale_tensor.shape(), zero_point));
  std::vector<float> values = ElementsAs<float>(x);
  const std::vector<float> scales = ElementsAs<float>(scale_tensor);
  MinifloatOptions options;
  options.saturate = node.attributes.Int("saturate", 1) != 0;
  const bool half = x.type() == DataType::kFloat16 && scale_tensor.type() == DataType::kFloat16;
  if (IsMinifloat(to)) {
    map.ForEach([&](int64_t i, int64_t s) {
      values[static_cast<size_t>(i)] /= scales[static_cast<size_t>(s)];
    });
    return OneValue(TensorFrom(to, x.shape(), values, options));
  }
  const std::pair<double, double> limits = LimitsOf(to);
  const std::vector<double> zeros =
      zero_point != nullptr ? ElementsAs<double>(*zero_point) : std::vector<double>(scales.size());
  std::vector<int64_t> out(values.size());
  map.ForEach([&](int64_t i, int64_t s) {
    float quotient = values[static_cast<size_t>(i)] / scales[static_cast<size_t>(s)];
    if (half) quotient = static_cast<float>(Float16(quotient));
    const double rounded =
        std::nearbyint(static_cast<double>(quotient)) + zeros[static_cast<size_t>(s)];
    out[static_cast<size_t>(i)] =
        Truncated<int64_t>(std::clamp(rounded, limits.first, limits.second));
  });
  return OneValue(TensorFrom(to, x.shape(), out));
}

Result<std::vector<Value>> Dequantize(const Node& node, std::span<const Value> inputs,
                                      DataType to) {
  const Tensor& x = inputs[0].tensor();
  const Tensor* zero_point = TensorAt(inputs, 2);
  ONNXD_ASSIGN_OR_RETURN(const ScaleMap map,
                         MapScales(node, x.shape(), inputs[1].tensor().shape(), zero_point));
  const std::vector<double> values = ElementsAs<double>(x);
  const std::vector<float> scales = ElementsAs<float>(inputs[1].tensor());
  const std::vector<double> zeros =
      zero_point != nullptr ? ElementsAs<double>(*zero_point) : std::vector<double>(scales.size());
  std::vector<float> out(values.size());
  map.ForEach([&](int64_t i, int64_t s) {
    const auto difference =
        static_cast<float>(values[static_cast<size_t>(i)] - zeros[static_cast<size_t>(s)]);
    out[static_cast<size_t>(i)] = difference * scales[static_cast<size_t>(s)];
  });
  return OneValue(TensorFrom(to, x.shape(), out));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeQuantizeLinear(const KernelInfo& info) {
  if (auto fast = MakeByteQuantize(info); fast.ok()) return fast;
  const DataType to = info.OutputType(0);
  return MakeEagerKernel(
      [to](const Node& node, std::span<const Value> inputs) { return Quantize(node, inputs, to); });
}

Result<std::unique_ptr<Kernel>> MakeDequantizeLinear(const KernelInfo& info) {
  if (auto fast = MakeByteDequantize(info); fast.ok()) return fast;
  const DataType to = info.OutputType(0);
  return MakeEagerKernel([to](const Node& node, std::span<const Value> inputs) {
    return Dequantize(node, inputs, to);
  });
}

}  // namespace onnxd
