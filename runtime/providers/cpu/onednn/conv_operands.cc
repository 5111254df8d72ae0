#include "runtime/providers/cpu/onednn/conv_operands.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd::onednn {

Status CheckConvOperands(const PrepareContext& context, const Shape& weights) {
  const Shape &x = context.InputShape(0), &y = context.OutputShape(0);
  if (x[3] != weights[1] || y[3] != weights[0] ||
      (context.HasInput(2) && context.InputShape(2).ElementCount() != weights[0]) ||
      (context.HasInput(3) && !(context.InputShape(3) == y))) {
    return InvalidArgument(
        StrCat(Describe(context.node), ": X, weights, bias and Z do not fit together"));
  }
  return Status::Ok();
}

Result<Tensor> PackConvWeights(const math::Simd& simd, const Tensor& plain, int64_t depth) {
  const Shape& w = plain.shape();
  const int64_t out = w[0], in = w[1], window = w[2] * w[3], k = in * window;
  ONNXD_ASSIGN_OR_RETURN(Tensor rows, Tensor::Create(DataType::kFloat, Shape{out, k}));
  for (int64_t o = 0; o < out; ++o) {
    const float* from = plain.data<float>() + o * k;
    float* to = rows.mutable_data<float>() + o * k;
    for (int64_t c = 0; c < in; ++c) {
      for (int64_t i = 0; i < window; ++i) to[i * in + c] = from[c * window + i];
    }
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                         Tensor::Create(DataType::kFloat, Shape{math::PackedBSize(simd, k, out)}));
  float* to = packed.mutable_data<float>();
  for (int64_t first = 0; first < k; first += depth) {
    const int64_t part = std::min(depth, k - first);
    simd.pack_b(rows.data<float>() + first, k, true, part, out, to);
    to += math::PackedBSize(simd, part, out);
  }
  return packed;
}

}  // namespace onnxd::onednn
