// com.microsoft SkipSimplifiedLayerNormalization. Source of the semantics: onnxruntime's
// ContribOperators document.
#include <cmath>

#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// RMS normalisation of input + skip + bias; output 3 is that sum.
Result<std::vector<Value>> SkipRmsNormalization(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& skip = inputs[1].tensor();
  const Tensor& gamma = inputs[2].tensor();
  const Tensor* bias = TensorAt(inputs, 3);
  const Shape& shape = x.shape();
  const int64_t width = shape.rank() == 0 ? 0 : shape[shape.rank() - 1];
  if (width == 0 || skip.ElementCount() == 0 || gamma.ElementCount() != width ||
      x.ElementCount() % skip.ElementCount() != 0 || skip.ElementCount() % width != 0 ||
      (bias != nullptr && bias->ElementCount() != width)) {
    return InvalidArgument(StrCat(Describe(node), ": input shapes do not match"));
  }
  const float epsilon = node.attributes.Float("epsilon", 1e-12f);
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kFloat, shape));
  ONNXD_ASSIGN_OR_RETURN(Tensor sums, Tensor::Create(DataType::kFloat, shape));
  const math::Simd& simd = math::CurrentSimd();
  for (int64_t at = 0; at < x.ElementCount(); at += width) {
    float* sum = sums.mutable_data<float>() + at;
    simd.binary(math::Binary::kAdd, x.data<float>() + at,
                skip.data<float>() + at % skip.ElementCount(), sum, width, 1, 1);
    if (bias != nullptr) {
      simd.binary(math::Binary::kAdd, sum, bias->data<float>(), sum, width, 1, 1);
    }
    const float square = simd.sum_of_squares(sum, width, 0.0f) / static_cast<float>(width);
    simd.normalize(sum, out.mutable_data<float>() + at, width, 0.0f,
                   1.0f / std::sqrt(square + epsilon), gamma.data<float>(), nullptr);
  }
  return std::vector<Value>{std::move(out), Value(), Value(), std::move(sums)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeSkipRmsNormalization(const KernelInfo& info) {
  for (const size_t i : {1, 2}) {
    if (info.node.output(i) != kNoValue) {
      return Unimplemented("the mean and inv_std_var outputs are not supported");
    }
  }
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  return MakeEagerKernel(SkipRmsNormalization);
}

}  // namespace onnxd
