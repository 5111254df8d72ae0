// onnxd::ConvChannelsLast of images of one pixel, 1 x 1, as squeeze-and-excite has them: a product
// of as many rows as there are images, which takes what it takes to read the weights.
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"
#include "runtime/providers/cpu/onednn/few_rows.h"

namespace onnxd {
namespace {

// Weights [out, in, 1, 1] in panels of few_rows.
Result<Tensor> InPanels(const Tensor& plain) {
  constexpr int64_t kWidth = math::kFewRowsPanel;
  const int64_t out = plain.shape()[0], in = plain.shape()[1];
  const int64_t panels = (out + kWidth - 1) / kWidth;
  ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                         Tensor::Create(DataType::kFloat, Shape{panels, in, kWidth}));
  auto* to = packed.mutable_data<float>();
  for (int64_t panel = 0; panel < panels; ++panel) {
    for (int64_t p = 0; p < in; ++p) {
      for (int64_t column = panel * kWidth; column < (panel + 1) * kWidth; ++column) {
        *to++ = column < out ? plain.data<float>()[column * in + p] : 0.0f;
      }
    }
  }
  return packed;
}

class OnePixelConv : public Kernel {
 public:
  OnePixelConv(const Activation& activation, Initializer weights)
      : activation_(activation),
        shape_(weights.shape()),
        weights_(std::make_unique<LazyForm>(std::move(weights), "one pixel, panels of 64")) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    ONNXD_ASSIGN_OR_RETURN(
        const onednn::ConvGeometry geometry,
        onednn::GeometryOf(context.node, context.InputShape(0), context.OutputShape(0), shape_));
    ONNXD_RETURN_IF_ERROR(onednn::CheckBiasAndSum(context, geometry.out));
    ONNXD_ASSIGN_OR_RETURN(const Tensor packed,
                           weights_->Get([](const Tensor& plain) { return InPanels(plain); }));
    onednn::FewRowsProduct product{};
    product.m = geometry.images * geometry.pixels();
    product.k = geometry.in;
    product.n = geometry.out;
    product.panels = {packed.data<float>(), geometry.in * math::kFewRowsPanel};
    product.activation = activation_;
    product.has_sum = context.HasInput(3);
    product.threads = context.threads;
    return onednn::PrepareFewRows(product);
  }

 private:
  Activation activation_;
  Shape shape_;
  std::unique_ptr<LazyForm> weights_;
};

bool IsOnePixel(const ValueType& type) {
  const auto& shape = type.shape;
  return shape && shape->size() == 4 && (*shape)[1].known() && (*shape)[1].value == 1 &&
         (*shape)[2].known() && (*shape)[2].value == 1;
}

}  // namespace

// Of any number of images.
bool TakesOnePixel(const KernelInfo& info, const Shape& weights) {
  return math::CurrentSimd().few_rows != nullptr &&
         onednn::IsPointwise(info.node.attributes, weights) && IsOnePixel(info.input_types[0]) &&
         IsOnePixel(info.output_types[0]);
}

// Requires weights of floats that TakesOnePixel.
Result<std::unique_ptr<Kernel>> MakeOnePixelConv(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer& weights = *info.constant_input(1);
  ONNXD_RETURN_IF_ERROR(weights.Load());
  return std::unique_ptr<Kernel>(std::make_unique<OnePixelConv>(activation, weights));
}

}  // namespace onnxd
