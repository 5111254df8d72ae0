// onnxd::PlanarConv: a 2-D convolution of images [batch, channels, height, width] of few channels
// to [batch, height, width, channels], the first one of a network. A product for each row of the
// result, which reads the planes as they are: nothing is transposed.
#include <algorithm>

#include "runtime/base/checked_math.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/onednn/planar_windows.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

struct Plan {
  onednn::PlanarWindows windows;
  Shape x, y;
  int64_t rows;  // of the result, of all images, for a worker
  int64_t worker_bytes;
};

class PlanarConv : public Kernel {
 public:
  PlanarConv(const Activation& activation, Shape weights, Tensor packed, const math::Simd& simd)
      : activation_(BoundsOf(activation)),
        weights_(std::move(weights)),
        packed_(std::move(packed)),
        simd_(simd) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(0), &y = context.OutputShape(0), &w = weights_;
    if (x[1] != w[1] || (context.HasInput(2) && context.InputShape(2).ElementCount() != w[0])) {
      return InvalidArgument(StrCat(Describe(context.node), ": X has shape ", x.ToString(),
                                    "; it, weights and bias do not fit together"));
    }
    PreparedKernel prepared;
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    Plan plan{};
    plan.x = x;
    plan.y = y;
    plan.windows = {{}, x[1], x[2], x[3]};
    ONNXD_ASSIGN_OR_RETURN(plan.windows.window,
                           PoolWindow(context.node, {x[2], x[3]}, {w[2], w[3]}));
    ONNXD_RETURN_IF_ERROR(onednn::CheckPads(context.node, plan.windows.window));
    const int64_t rows = y[0] * y[1];
    const int64_t workers = std::min(
        rows, onednn::BandsPerImage(Shape{1, rows, y[2], y[3]}, plan.windows.k(), context.threads));
    plan.rows = (rows + workers - 1) / workers;
    plan.worker_bytes = (plan.windows.ScratchBytes() + 63) / 64 * 64;
    prepared.scratch_bytes = static_cast<size_t>(workers * plan.worker_bytes);
    prepared.compute = [plan, rows, this](const KernelContext& k) {
      k.pool().ParallelFor(rows, plan.rows,
                           [&](int64_t begin, int64_t end) { ComputeRows(plan, k, begin, end); });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  // Rows of the result of all images.
  void ComputeRows(const Plan& plan, const KernelContext& k, int64_t begin, int64_t end) const {
    std::byte* scratch = k.scratch<std::byte>() + begin / plan.rows * plan.worker_bytes;
    const int64_t height = plan.y[1], x_size = plan.x[1] * plan.x[2] * plan.x[3];
    while (begin < end) {
      const int64_t image = begin / height, first = begin % height;
      const int64_t last = std::min(height, first + end - begin);
      onednn::PlanarReader reader(plan.windows, k.input<float>(0) + image * x_size, scratch);
      for (int64_t row = first; row < last; ++row) {
        ComputeRow(plan, reader, row, k.input<float>(2),
                   k.output<float>(0) + (image * height + row) * plan.y[2] * plan.y[3]);
      }
      begin += last - first;
    }
  }

  void ComputeRow(const Plan& plan, onednn::PlanarReader& reader, int64_t row, const float* bias,
                  float* y) const {
    const int64_t width = plan.y[2], channels = plan.y[3];
    math::GemmArguments g{};
    g.m = width, g.n = channels, g.k = plan.windows.k();
    g.lda = plan.windows.window.strides[1];
    g.columns = reader.Row(row);
    g.packed_b = packed_.data<float>();
    g.c = y;
    g.ldc = channels;
    g.bias = bias;
    g.low = activation_.low, g.high = activation_.high;
    simd_.gemm(g);
    activation_.rest.Apply(y, width * channels);
  }

  ActivationBounds activation_;
  Shape weights_;
  Tensor packed_;
  const math::Simd& simd_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakePlanarConv(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer* weights = info.constant_input(1);
  if (weights == nullptr || !onednn::TakesPlanes(info.node.attributes, weights->shape())) {
    return Unimplemented("PlanarConv needs constant weights, small windows of few channels");
  }
  const math::Simd& simd = math::CurrentSimd();
  const int64_t out = weights->shape()[0], k = weights->shape().ElementCount() / out;
  ONNXD_ASSIGN_OR_RETURN(
      Tensor packed,
      weights->InForm(StrCat("planes, ", simd.name), [&](const Tensor& plain) -> Result<Tensor> {
        ONNXD_ASSIGN_OR_RETURN(
            Tensor made, Tensor::Create(DataType::kFloat, Shape{math::PackedBSize(simd, k, out)}));
        simd.pack_b(plain.data<float>(), k, true, k, out, made.mutable_data<float>());
        return made;
      }));
  return std::unique_ptr<Kernel>(
      std::make_unique<PlanarConv>(activation, weights->shape(), std::move(packed), simd));
}

}  // namespace onnxd
