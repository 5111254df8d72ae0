#include "runtime/providers/cpu/onednn/conv_operands.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/filter_rows.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"

namespace onnxd::onednn {

Result<ConvGeometry> GeometryOf(const Node& node, const Shape& x, const Shape& y,
                                const Shape& weights) {
  if (x[3] != weights[1] || y[3] != weights[0]) {
    return InvalidArgument(StrCat(Describe(node), ": X has shape ", x.ToString(),
                                  ", channels last; weights have shape ", weights.ToString()));
  }
  ONNXD_ASSIGN_OR_RETURN(Window window, PoolWindow(node, {x[1], x[2]}, {weights[2], weights[3]}));
  ONNXD_RETURN_IF_ERROR(CheckPads(node, window));
  return ConvGeometry{std::move(window), y[0], x[1], x[2], x[3], y[1], y[2], y[3]};
}

bool IsPointwise(const Attributes& a, const Shape& weights) {
  return weights.rank() == 4 && weights[2] == 1 && weights[3] == 1 && a.Int("group", 1) == 1 &&
         AreAll(a.Ints("strides"), 1) && AreAll(a.Ints("pads"), 0);
}

Status CheckBiasAndSum(const PrepareContext& context, int64_t out) {
  if ((context.HasInput(2) && context.InputShape(2).ElementCount() != out) ||
      (context.HasInput(3) && !(context.InputShape(3) == context.OutputShape(0)))) {
    return InvalidArgument(StrCat(Describe(context.node), ": bias and Z do not fit the result"));
  }
  return Status::Ok();
}

Result<Tensor> PackConvWeights(const math::Simd& simd, const Tensor& plain, int64_t depth) {
  ONNXD_ASSIGN_OR_RETURN(const Tensor rows, FilterRows(plain));
  const int64_t out = rows.shape()[0], k = rows.shape()[1];
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
