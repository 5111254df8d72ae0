// onnxd::ConvChannelsLast with a filter for each channel, by loops of our own.
#include <algorithm>

#include "runtime/base/claim_lines.h"
#include "runtime/kernel/kernel.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/depthwise.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// Rows [begin, end) of all images' results, one under the other.
void ComputeRows(const DepthwiseConv& conv, const Window& window, const Shape& x, const Shape& y,
                 const KernelContext& k, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t image = begin / y[1], first = begin % y[1];
    const int64_t last = std::min(y[1], first + end - begin);
    const float* rows = k.input<float>(0) + image * x[1] * x[2] * x[3];
    float* out = k.output<float>(0) + begin * y[2] * y[3];
    const int64_t count = (last - first) * y[2] * y[3];
    if (k.pool().threads() > 1) ClaimLines(out, static_cast<size_t>(count) * sizeof(float));
    conv.Compute({rows, x[1], x[2], x[1], 0, x[3], x[3]}, window, k.input<float>(2), first, last,
                 out);
    conv.activation().Apply(out, count);
    begin += last - first;
  }
}

class DepthwiseChannelsLast : public Kernel {
 public:
  explicit DepthwiseChannelsLast(DepthwiseConv conv) : conv_(std::move(conv)) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(0), &y = context.OutputShape(0);
    if (x[3] != conv_.channels() || y[3] != conv_.channels() ||
        (context.HasInput(2) && context.InputShape(2).ElementCount() != conv_.channels())) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": X, weights and bias do not fit together"));
    }
    PreparedKernel prepared;
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    ONNXD_ASSIGN_OR_RETURN(const Window window,
                           PoolWindow(context.node, {x[1], x[2]}, conv_.window()));
    ONNXD_RETURN_IF_ERROR(onednn::CheckPads(context.node, window));
    const int64_t bands = onednn::BandsPerImage(
        Shape{1, y[0] * y[1], y[2], y[3]}, window.kernel[0] * window.kernel[1], context.threads);
    const int64_t rows = (y[0] * y[1] + bands - 1) / bands;
    if (const auto pixels = conv_.PixelsAhead(window, x, y); pixels && rows >= y[0] * y[1]) {
      const size_t bytes = static_cast<size_t>(*pixels * y[3]) * sizeof(float);
      prepared.slides = {
          {0, 0, (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment}};
    }
    prepared.compute = [this, x, y, window, rows](const KernelContext& k) {
      k.pool().ParallelFor(y[0] * y[1], rows, [&](int64_t begin, int64_t end) {
        ComputeRows(conv_, window, x, y, k, begin, end);
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  DepthwiseConv conv_;
};

}  // namespace

// Requires weights that DepthwiseConv takes.
Result<std::unique_ptr<Kernel>> MakeDepthwiseChannelsLast(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  ONNXD_ASSIGN_OR_RETURN(DepthwiseConv conv,
                         DepthwiseConv::Create(*info.constant_input(1), activation));
  return std::unique_ptr<Kernel>(std::make_unique<DepthwiseChannelsLast>(std::move(conv)));
}

}  // namespace onnxd
