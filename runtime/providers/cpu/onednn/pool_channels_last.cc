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

struct PoolPlan {
  Shape x, y;
  Window window;
};

// Calls first(out, in) for the first pixel of each window, more(out, in) for the others and
// last(out, pixels, pixels with padding) behind them; `in` and `out` are rows of channels.
template <typename T, typename First, typename More, typename Last>
void ForWindows(const PoolPlan& plan, const KernelContext& k, First first, More more, Last last) {
  const Shape &x = plan.x, &y = plan.y;
  const int64_t channels = x[3];
  k.pool().ParallelFor(
      y[0] * y[1], 1 + 4096 / (y[2] * channels + 1), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const T* image = k.input<T>(0) + row / y[1] * x[1] * x[2] * channels;
          const WindowRange v = RangeOf(plan.window, 0, row % y[1], x[1]);
          for (int64_t column = 0; column < y[2]; ++column) {
            const WindowRange h = RangeOf(plan.window, 1, column, x[2]);
            T* out = k.output<T>(0) + (row * y[2] + column) * channels;
            int64_t count = 0;
            for (int64_t i = v.begin; i < v.end; i += v.step) {
              for (int64_t j = h.begin; j < h.end; j += h.step) {
                const T* in = image + (i * x[2] + j) * channels;
                count++ == 0 ? first(out, in) : more(out, in);
              }
            }
            last(out, count, v.padded * h.padded);
          }
        }
      });
}

void MaxOfFloats(const PoolPlan& plan, const KernelContext& k) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t channels = plan.x[3];
  ForWindows<float>(
      plan, k, [=](float* out, const float* in) { std::copy_n(in, channels, out); },
      [&](float* out, const float* in) {
        simd.binary(math::Binary::kMax, out, in, out, channels, 1, 1);
      },
      [=](float* out, int64_t count, int64_t) {
        if (count == 0) std::fill_n(out, channels, 0.0f);
      });
}

void MeanOfFloats(const PoolPlan& plan, bool include_pad, const KernelContext& k) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t channels = plan.x[3];
  ForWindows<float>(
      plan, k, [=](float* out, const float* in) { std::copy_n(in, channels, out); },
      [&](float* out, const float* in) {
        simd.binary(math::Binary::kAdd, out, in, out, channels, 1, 1);
      },
      [&](float* out, int64_t count, int64_t padded) {
        if (count == 0) return std::fill(out, out + channels, 0.0f);
        const auto pixels = static_cast<float>(include_pad ? padded : count);
        simd.affine(out, out, channels, 1.0f / pixels, 0.0f);
      });
}

void MaxOfBytes(const PoolPlan& plan, bool is_signed, const KernelContext& k) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t channels = plan.x[3];
  ForWindows<uint8_t>(
      plan, k, [=](uint8_t* out, const uint8_t* in) { std::copy_n(in, channels, out); },
      [&](uint8_t* out, const uint8_t* in) { simd.max_bytes(out, in, out, channels, is_signed); },
      [=](uint8_t* out, int64_t count, int64_t) {
        if (count == 0) std::fill_n(out, channels, uint8_t{0});
      });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakePoolChannelsLast(const KernelInfo& info) {
  const bool maximum = info.node.op_type == "MaxPoolChannelsLast";
  const bool include_pad = info.node.attributes.Int("count_include_pad", 0) != 0;
  const DataType type = info.InputType(0);
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    PoolPlan plan{context.InputShape(0), context.OutputShape(0), {}};
    ONNXD_ASSIGN_OR_RETURN(plan.window,
                           PoolWindow(context.node, {plan.x[1], plan.x[2]},
                                      context.node.attributes.Ints("kernel_shape")));
    PreparedKernel prepared;
    if (type != DataType::kFloat) {
      prepared.compute = [plan, is_signed = type == DataType::kInt8](const KernelContext& k) {
        MaxOfBytes(plan, is_signed, k);
        return Status::Ok();
      };
    } else if (maximum) {
      prepared.compute = [plan](const KernelContext& k) {
        MaxOfFloats(plan, k);
        return Status::Ok();
      };
    } else {
      prepared.compute = [plan, include_pad](const KernelContext& k) {
        MeanOfFloats(plan, include_pad, k);
        return Status::Ok();
      };
    }
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
