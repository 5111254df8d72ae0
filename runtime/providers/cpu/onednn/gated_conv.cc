// onnxd::GatedConv: a 1 x 1 convolution of images [batch, height, width, channels] each channel of
// which is multiplied by a gate first, [batch, 1, 1, channels], as squeeze-and-excite does it. The
// weights are multiplied instead, which are fewer than the pixels.
#include <algorithm>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"
#include "runtime/providers/cpu/packed_product.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr size_t kGate = 4;

struct Plan {
  int64_t images, pixels, in, out;
  bool one_gate;  // for all images
  ProductCut cut;
  int64_t packed_floats;
};

class GatedConv : public Kernel {
 public:
  GatedConv(const Activation& activation, Initializer weights, const math::Simd& simd)
      : activation_(BoundsOf(activation)),
        shape_(weights.shape()),
        weights_(std::make_unique<LazyForm>(std::move(weights), StrCat("gated, ", simd.name))),
        simd_(simd) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(0), &y = context.OutputShape(0);
    const Shape& gate = context.InputShape(kGate);
    ONNXD_ASSIGN_OR_RETURN(const onednn::ConvGeometry geometry,
                           onednn::GeometryOf(context.node, x, y, shape_));
    ONNXD_RETURN_IF_ERROR(onednn::CheckBiasAndSum(context, geometry.out));
    if (gate.rank() != 4 || (gate[0] != 1 && gate[0] != x[0]) || gate[3] != x[3] ||
        gate.ElementCount() != gate[0] * gate[3]) {
      return InvalidArgument(StrCat(Describe(context.node), ": the gate has shape ",
                                    gate.ToString(), ", X has ", x.ToString()));
    }
    PreparedKernel prepared;
    if (context.HasInput(3)) prepared.in_place = {{0, 3}};
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    Plan plan{};
    plan.images = geometry.images, plan.pixels = geometry.pixels();
    plan.in = geometry.in, plan.out = geometry.out;
    plan.one_gate = gate[0] == 1;
    plan.packed_floats = math::PackedBSize(simd_, plan.in, plan.out);
    plan.cut = CutProduct(plan.pixels, (plan.out + simd_.gemm_width - 1) / simd_.gemm_width,
                          plan.pixels * plan.in * plan.out, context.threads);
    prepared.scratch_bytes = static_cast<size_t>(plan.packed_floats) * sizeof(float);
    ONNXD_ASSIGN_OR_RETURN(const Tensor packed, weights_->Get([&](const Tensor& plain) {
      return onednn::PackConvWeights(simd_, plain, plan.in);
    }));
    prepared.compute = [plan, packed, this](const KernelContext& k) {
      for (int64_t image = 0; image < plan.images; ++image) RunImage(plan, packed, k, image);
      return Status::Ok();
    };
    return prepared;
  }

 private:
  void RunImage(const Plan& plan, const Tensor& packed, const KernelContext& k,
                int64_t image) const {
    auto* gated = k.scratch<float>();
    if (image == 0 || !plan.one_gate) {
      Gate(plan, packed.data<float>(), k.input<float>(kGate) + image * plan.in, gated);
    }
    const float* x = k.input<float>(0) + image * plan.pixels * plan.in;
    const int64_t at = image * plan.pixels * plan.out;
    const float* z = k.input<float>(3);
    const ProductResult result{k.input<float>(2), z != nullptr ? z + at : nullptr, activation_,
                               k.output<float>(0) + at};
    k.pool().ParallelFor(plan.cut.workers, 1, [&](int64_t first, int64_t last) {
      for (int64_t worker = first; worker < last; ++worker) {
        const Share share = ShareOf(plan.cut.units(), worker, plan.cut.workers);
        for (int64_t i = share.begin; i < share.end; ++i) {
          const ProductUnit unit = UnitOf(plan.cut, i, plan.pixels, plan.out, simd_.gemm_width);
          math::GemmArguments g{};
          g.a = x + unit.first_row * plan.in;
          g.lda = plan.in;
          RunProductUnit(simd_, unit, {gated, plan.in, plan.out}, result, g);
        }
      }
    });
  }

  // Rows of panels are the weights of one channel.
  void Gate(const Plan& plan, const float* packed, const float* gate, float* gated) const {
    const int64_t width = simd_.gemm_width;
    for (int64_t row = 0; row < plan.packed_floats / width; ++row) {
      simd_.affine(packed + row * width, gated + row * width, width, gate[row % plan.in], 0.0f);
    }
  }

  ActivationBounds activation_;
  Shape shape_;
  std::unique_ptr<LazyForm> weights_;
  const math::Simd& simd_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGatedConv(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer* weights = info.constant_input(1);
  if (weights == nullptr || weights->shape().rank() != 4 || weights->shape()[2] != 1 ||
      weights->shape()[3] != 1) {
    return Unimplemented("GatedConv needs constant weights of 1 x 1");
  }
  ONNXD_RETURN_IF_ERROR(weights->Load());
  return std::unique_ptr<Kernel>(
      std::make_unique<GatedConv>(activation, *weights, math::CurrentSimd()));
}

}  // namespace onnxd
