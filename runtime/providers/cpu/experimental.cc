// Operators that ONNX tried in its first opsets and dropped again at 10, which files of that time
// hold: Affine, ImageScaler, ParametricSoftplus, ScaledTanh. (Crop and DynamicSlice move data, see
// data_movement.cc.)
#include <algorithm>
#include <cmath>

#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// x * scale + bias per channel.
Result<Values> ImageScaler(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const double scale = node.attributes.Float("scale", 1);
  const std::vector<float> bias = node.attributes.Floats("bias");
  if (shape.rank() < 2 || (!bias.empty() && static_cast<int64_t>(bias.size()) != shape[1])) {
    return InvalidArgument(StrCat(Describe(node), ": bias does not fit ", shape.ToString()));
  }
  const auto plane = static_cast<size_t>(std::max<int64_t>(shape.ElementCount(2, shape.rank()), 1));
  std::vector<double> values = ElementsAs<double>(x);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = values[i] * scale +
                (bias.empty() ? 0.0 : static_cast<double>(bias[i / plane % bias.size()]));
  }
  return OneValue(TensorFrom(x.type(), shape, values));
}

// alpha and beta, whose meaning is the operator's.
Result<Values> TwoParameters(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const double alpha = node.attributes.Float("alpha", 1);
  const double beta = node.attributes.Float("beta", node.op_type == "Affine" ? 0.0f : 1.0f);
  std::vector<double> values = ElementsAs<double>(x);
  for (double& value : values) {
    if (node.op_type == "Affine") {
      value = alpha * value + beta;
    } else if (node.op_type == "ScaledTanh") {
      value = alpha * std::tanh(beta * value);
    } else {
      value = alpha * std::log1p(std::exp(beta * value));
    }
  }
  return OneValue(TensorFrom(x.type(), x.shape(), values));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeImageScaler(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) return MakeEagerKernel(ImageScaler);
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    const float scale = context.node.attributes.Float("scale", 1);
    std::vector<float> bias = context.node.attributes.Floats("bias");
    if (shape.rank() < 2 || (!bias.empty() && static_cast<int64_t>(bias.size()) != shape[1])) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": bias does not fit ", shape.ToString()));
    }
    bias.resize(static_cast<size_t>(shape[1]));
    const int64_t plane = shape.ElementCount(2, shape.rank()), planes = shape[0] * shape[1];
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.compute = [=](const KernelContext& k) {
      for (int64_t i = 0; i < planes; ++i) {
        math::CurrentSimd().affine(k.input<float>(0) + i * plane, k.output<float>(0) + i * plane,
                                   plane, scale, bias[static_cast<size_t>(i) % bias.size()]);
      }
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeTwoParameters(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat || info.node.op_type != "Affine") {
    return MakeEagerKernel(TwoParameters);
  }
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    const float alpha = context.node.attributes.Float("alpha", 1);
    const float beta = context.node.attributes.Float("beta", 0);
    const int64_t count = context.InputShape(0).ElementCount();
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.compute = [=](const KernelContext& k) {
      math::CurrentSimd().affine(k.input<float>(0), k.output<float>(0), count, alpha, beta);
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
