// The kernel of onnxd::ConvChannelsLast by loops of our own that compute rows of the result.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/base/claim_lines.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd::onednn {

// Of the result, at least: what follows on it finds them in a cache.
inline constexpr int64_t kCachedFloats = 1 << 14;

// The bytes of at least so many whole pixels, at the end of which a tensor may begin. A part of a
// pixel would move a channel's results onto channels that are read later.
inline size_t AlignedPixels(int64_t pixels, int64_t channels) {
  const size_t pixel = static_cast<size_t>(channels) * sizeof(float);
  const size_t unit = std::lcm(pixel, kTensorAlignment);
  return (static_cast<size_t>(pixels) * pixel + unit - 1) / unit * unit;
}

// Conv: DepthwiseConv or GroupConv.
template <typename Conv>
class RowsChannelsLast : public Kernel {
 public:
  RowsChannelsLast(Conv conv, const Activation& behind_sum)
      : conv_(std::move(conv)), behind_sum_(behind_sum) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(0), &y = context.OutputShape(0);
    if (x[3] != conv_.channels() || y[3] != conv_.channels()) {
      return InvalidArgument(StrCat(Describe(context.node), ": X and weights do not fit together"));
    }
    ONNXD_RETURN_IF_ERROR(CheckBiasAndSum(context, conv_.channels()));
    PreparedKernel prepared;
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    ONNXD_ASSIGN_OR_RETURN(const Window window,
                           PoolWindow(context.node, {x[1], x[2]}, conv_.window()));
    ONNXD_RETURN_IF_ERROR(CheckPads(context.node, window));
    const int64_t bands =
        BandsPerImage(Shape{1, y[0] * y[1], y[2], y[3]}, conv_.products(), context.threads);
    const int64_t rows = (y[0] * y[1] + bands - 1) / bands;
    if constexpr (requires { conv_.PixelsAhead(window, x, y); }) {
      const auto pixels = conv_.PixelsAhead(window, x, y);
      if (pixels && rows >= y[0] * y[1]) {
        prepared.slides = {{0, 0, AlignedPixels(*pixels, y[3])}};
      }
    }
    prepared.compute = [this, x, y, window, rows](const KernelContext& k) {
      k.pool().ParallelFor(y[0] * y[1], rows, [&](int64_t begin, int64_t end) {
        ComputeRows(window, x, y, k, begin, end);
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  // Rows [begin, end) of all images' results, one under the other.
  void ComputeRows(const Window& window, const Shape& x, const Shape& y, const KernelContext& k,
                   int64_t begin, int64_t end) const {
    const int64_t row = y[2] * y[3];
    const int64_t at_once = Finishes(k) ? std::max<int64_t>(1, kCachedFloats / row) : y[1];
    if (k.pool().threads() > 1) {
      ClaimLines(k.output<float>(0) + begin * row,
                 static_cast<size_t>((end - begin) * row) * sizeof(float));
    }
    while (begin < end) {
      const int64_t image = begin / y[1], first = begin % y[1];
      const int64_t last = std::min({y[1], first + end - begin, first + at_once});
      const float* rows = k.input<float>(0) + image * x[1] * x[2] * x[3];
      float* out = k.output<float>(0) + begin * row;
      conv_.ComputeRows(rows, {x[1], x[2]}, window, k.input<float>(2), first, last, out);
      Finish(k.input<float>(3), begin * row, out, (last - first) * row);
      begin += last - first;
    }
  }

  // Whether results are read again.
  bool Finishes(const KernelContext& k) const {
    return k.input<float>(3) != nullptr || conv_.activation().kind != Activation::Kind::kNone;
  }

  // Elements from `offset` on.
  void Finish(const float* sum, int64_t offset, float* out, int64_t count) const {
    conv_.activation().Apply(out, count);
    if (sum == nullptr) return;
    math::CurrentSimd().binary(math::Binary::kAdd, out, sum + offset, out, count, 1, 1);
    behind_sum_.Apply(out, count);
  }

  Conv conv_;
  Activation behind_sum_;
};

// Of a node whose weights Conv takes.
template <typename Conv>
Result<std::unique_ptr<Kernel>> MakeRowsChannelsLast(const KernelInfo& info,
                                                     Result<Conv> (*create)(const KernelInfo&,
                                                                            const Activation&)) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const bool has_sum = info.node.input(3) != kNoValue;
  ONNXD_ASSIGN_OR_RETURN(Conv conv, create(info, has_sum ? Activation() : activation));
  return std::unique_ptr<Kernel>(std::make_unique<RowsChannelsLast<Conv>>(
      std::move(conv), has_sum ? activation : Activation()));
}

}  // namespace onnxd::onednn
