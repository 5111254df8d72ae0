// onnxd::GatedConv: a 1 x 1 convolution of images [batch, height, width, channels] each channel of
// which is multiplied by a gate first, [batch, 1, 1, channels], as squeeze-and-excite does it. The
// weights are multiplied instead, which are fewer than the pixels.
#include <algorithm>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"
#include "runtime/providers/cpu/packed_columns.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr size_t kGate = 4;

struct Plan {
  int64_t images, pixels, in, out;
  bool one_gate;  // for all images
  int64_t rows;   // pixels of a thread
  ColumnCut cut;
};

class GatedConv : public Kernel {
 public:
  GatedConv(const Activation& activation, Tensor weights, const math::Simd& simd)
      : activation_(BoundsOf(activation)), weights_(std::move(weights)), simd_(simd) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(0), &y = context.OutputShape(0);
    const Shape& gate = context.InputShape(kGate);
    ONNXD_ASSIGN_OR_RETURN(const onednn::ConvGeometry geometry,
                           onednn::GeometryOf(context.node, x, y, weights_.shape()));
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
    plan.cut = CutColumns(simd_, plan.in, plan.out);
    const int64_t bands =
        onednn::BandsPerImage(Shape{1, plan.pixels, 1, plan.out}, plan.in, context.threads);
    plan.rows = (plan.pixels + bands - 1) / bands;
    prepared.scratch_bytes =
        static_cast<size_t>(plan.in * plan.out + plan.cut.PackedFloats(simd_) + 16) * sizeof(float);
    prepared.compute = [plan, this](const KernelContext& k) {
      for (int64_t image = 0; image < plan.images; ++image) RunImage(plan, k, image);
      return Status::Ok();
    };
    return prepared;
  }

 private:
  void RunImage(const Plan& plan, const KernelContext& k, int64_t image) const {
    auto* packed = k.scratch<float>();
    if (image == 0 || !plan.one_gate) {
      Gate(plan, k.input<float>(kGate) + image * plan.in, packed);
    }
    k.pool().ParallelFor(plan.pixels, plan.rows, [&](int64_t first, int64_t last) {
      const int64_t pixel = image * plan.pixels + first, at = pixel * plan.out;
      const int64_t count = (last - first) * plan.out;
      float* y = k.output<float>(0) + at;
      const float* z = k.input<float>(3);
      if (z != nullptr && z != k.output<float>(0)) std::copy_n(z + at, count, y);
      math::GemmArguments g{};
      g.m = last - first;
      g.a = k.input<float>(0) + pixel * plan.in, g.lda = plan.in;
      g.c = y, g.ldc = plan.out;
      g.bias = k.input<float>(2);
      g.accumulate = z != nullptr;
      g.low = activation_.low, g.high = activation_.high;
      MultiplyColumns(simd_, plan.cut, packed, g);
      activation_.rest.Apply(y, count);
    });
  }

  void Gate(const Plan& plan, const float* gate, float* packed) const {
    float* gated = packed + (plan.cut.PackedFloats(simd_) + 15) / 16 * 16;
    const float* plain = weights_.data<float>();
    for (int64_t row = 0; row < plan.out; ++row) {
      simd_.binary(math::Binary::kMul, plain + row * plan.in, gate, gated + row * plan.in, plan.in,
                   1, 1);
    }
    PackColumns(simd_, plan.cut, gated, packed);
  }

  ActivationBounds activation_;
  Tensor weights_;  // [out, in, 1, 1]
  const math::Simd& simd_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGatedConv(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer* weights = info.constant_input(1);
  if (weights == nullptr || !onednn::IsPointwise(info.node.attributes, weights->shape())) {
    return Unimplemented("GatedConv needs constant weights of 1 x 1, and each pixel once");
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor plain, weights->Materialize());
  return std::unique_ptr<Kernel>(
      std::make_unique<GatedConv>(activation, std::move(plain), math::CurrentSimd()));
}

}  // namespace onnxd
