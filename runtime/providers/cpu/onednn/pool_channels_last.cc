// Pools over [batch, height, width, channels]: whole rows of channels at a time.
#include <algorithm>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

struct WindowRange {
  int64_t begin, end, step;  // input positions inside the image
  int64_t padded;            // positions counted with count_include_pad
};

WindowRange RangeOf(const Window& window, size_t axis, int64_t o, int64_t extent) {
  const int64_t step = window.dilations[axis];
  int64_t begin = o * window.strides[axis] - window.pads_begin[axis];
  const int64_t last = begin + (window.kernel[axis] - 1) * step;
  int64_t padded = 0;
  for (int64_t at = begin; at <= last; at += step) padded += at < extent + window.pads_end[axis];
  while (begin < 0) begin += step;
  return {begin, std::min(last + 1, extent), step, padded};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakePoolChannelsLast(const KernelInfo& info) {
  const bool maximum = info.node.op_type == "MaxPoolChannelsLast";
  const bool include_pad = info.node.attributes.Int("count_include_pad", 0) != 0;
  return MakeKernel(
      [maximum, include_pad](const PrepareContext& context) -> Result<PreparedKernel> {
        const Shape x = context.InputShape(0);
        const Shape y = context.OutputShape(0);
        ONNXD_ASSIGN_OR_RETURN(
            const Window window,
            PoolWindow(context.node, {x[1], x[2]}, context.node.attributes.Ints("kernel_shape")));
        const int64_t channels = x[3];
        PreparedKernel prepared;
        prepared.compute = [=](const KernelContext& k) {
          const math::Simd& simd = math::CurrentSimd();
          k.pool().ParallelFor(
              y[0] * y[1], 1 + 4096 / (y[2] * channels + 1), [&](int64_t first, int64_t last) {
                for (int64_t row = first; row < last; ++row) {
                  const float* image = k.input<float>(0) + row / y[1] * x[1] * x[2] * channels;
                  const WindowRange v = RangeOf(window, 0, row % y[1], x[1]);
                  for (int64_t column = 0; column < y[2]; ++column) {
                    const WindowRange h = RangeOf(window, 1, column, x[2]);
                    float* out = k.output<float>(0) + (row * y[2] + column) * channels;
                    int64_t count = 0;
                    for (int64_t i = v.begin; i < v.end; i += v.step) {
                      for (int64_t j = h.begin; j < h.end; j += h.step) {
                        const float* in = image + (i * x[2] + j) * channels;
                        if (count++ == 0) {
                          std::copy_n(in, channels, out);
                        } else {
                          simd.binary(maximum ? math::Binary::kMax : math::Binary::kAdd, out, in,
                                      out, channels, 1, 1);
                        }
                      }
                    }
                    if (count == 0) std::fill_n(out, channels, 0.0f);
                    if (maximum || count == 0) continue;
                    if (include_pad) count = v.padded * h.padded;
                    simd.affine(out, out, channels, 1.0f / static_cast<float>(count), 0.0f);
                  }
                }
              });
          return Status::Ok();
        };
        return prepared;
      });
}

Result<std::unique_ptr<Kernel>> MakeGlobalAveragePoolChannelsLast(const KernelInfo&) {
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape x = context.InputShape(0);
    const int64_t pixels = x[1] * x[2], channels = x[3];
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      const math::Simd& simd = math::CurrentSimd();
      for (int64_t n = 0; n < x[0]; ++n) {
        const float* in = k.input<float>(0) + n * pixels * channels;
        float* out = k.output<float>(0) + n * channels;
        simd.sum_rows(in, pixels, channels, out);
        simd.affine(out, out, channels, 1.0f / static_cast<float>(pixels), 0.0f);
      }
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
