// Pools over [batch, height, width, channels]: whole rows of channels at a time.
#include <algorithm>
#include <vector>

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
  std::vector<WindowRange> columns;  // of each output column
};

// The pixels of one window, each a row of channels.
template <typename T>
struct WindowPixels {
  const T* image;
  int64_t width, channels;
  WindowRange rows, columns;

  int64_t padded() const { return rows.padded * columns.padded; }
  template <typename Body>
  void ForEach(Body body) const {
    for (int64_t i = rows.begin; i < rows.end; i += rows.step) {
      for (int64_t j = columns.begin; j < columns.end; j += columns.step) {
        body(image + (i * width + j) * channels);
      }
    }
  }
};

// Calls body(pixels, out) for each window.
template <typename T, typename Body>
void ForWindows(const PoolPlan& plan, const KernelContext& k, Body body) {
  const Shape &x = plan.x, &y = plan.y;
  const int64_t channels = x[3];
  k.pool().ParallelFor(y[0] * y[1], 1 + 4096 / (y[2] * channels + 1),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t row = begin; row < end; ++row) {
                           const T* image = k.input<T>(0) + row / y[1] * x[1] * x[2] * channels;
                           const WindowRange rows = RangeOf(plan.window, 0, row % y[1], x[1]);
                           for (int64_t column = 0; column < y[2]; ++column) {
                             const WindowRange& columns = plan.columns[static_cast<size_t>(column)];
                             body(WindowPixels<T>{image, x[2], channels, rows, columns},
                                  k.output<T>(0) + (row * y[2] + column) * channels);
                           }
                         }
                       });
}

// The largest of each channel, by reduce(list of rows, count, out).
template <typename T, typename Reduce>
void LargestOf(const WindowPixels<T>& pixels, T* out, Reduce reduce) {
  constexpr int64_t kMost = 32;
  const T* list[kMost];
  int64_t count = 0;
  pixels.ForEach([&](const T* pixel) {
    list[count++] = pixel;
    if (count < kMost) return;
    reduce(list, count, out);
    list[0] = out;
    count = 1;
  });
  if (count == 0) {
    std::fill_n(out, pixels.channels, T{0});
  } else {
    reduce(list, count, out);
  }
}

void MaxOfFloats(const PoolPlan& plan, const KernelContext& k) {
  const math::Simd& simd = math::CurrentSimd();
  ForWindows<float>(plan, k, [&](const WindowPixels<float>& pixels, float* out) {
    LargestOf(pixels, out, [&](const float* const* rows, int64_t count, float* to) {
      simd.max_rows(rows, count, to, pixels.channels);
    });
  });
}

void MaxOfBytes(const PoolPlan& plan, bool is_signed, const KernelContext& k) {
  const math::Simd& simd = math::CurrentSimd();
  ForWindows<uint8_t>(plan, k, [&](const WindowPixels<uint8_t>& pixels, uint8_t* out) {
    LargestOf(pixels, out, [&](const uint8_t* const* rows, int64_t count, uint8_t* to) {
      simd.max_byte_rows(rows, count, to, pixels.channels, is_signed);
    });
  });
}

void MaxOfBfloat16(const PoolPlan& plan, const KernelContext& k) {
  const math::Simd& simd = math::CurrentSimd();
  ForWindows<uint16_t>(plan, k, [&](const WindowPixels<uint16_t>& pixels, uint16_t* out) {
    LargestOf(pixels, out, [&](const uint16_t* const* rows, int64_t count, uint16_t* to) {
      simd.max_bfloat16_rows(rows, count, to, pixels.channels);
    });
  });
}

void MeanOfFloats(const PoolPlan& plan, bool include_pad, const KernelContext& k) {
  const math::Simd& simd = math::CurrentSimd();
  ForWindows<float>(plan, k, [&](const WindowPixels<float>& pixels, float* out) {
    int64_t count = 0;
    pixels.ForEach([&](const float* pixel) {
      if (count++ == 0) {
        std::copy_n(pixel, pixels.channels, out);
      } else {
        simd.binary(math::Binary::kAdd, out, pixel, out, pixels.channels, 1, 1);
      }
    });
    if (count == 0) return std::fill(out, out + pixels.channels, 0.0f);
    if (include_pad) count = pixels.padded();
    simd.affine(out, out, pixels.channels, 1.0f / static_cast<float>(count), 0.0f);
  });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakePoolChannelsLast(const KernelInfo& info) {
  const bool maximum = info.node.op_type == "MaxPoolChannelsLast";
  const bool include_pad = info.node.attributes.Int("count_include_pad", 0) != 0;
  const DataType type = info.InputType(0);
  const bool is_known = type == DataType::kFloat || (maximum && type != DataType::kFloat16);
  if (!is_known) return DeclineType(info.node.op_type, type);
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    PoolPlan plan{context.InputShape(0), context.OutputShape(0), {}, {}};
    ONNXD_ASSIGN_OR_RETURN(plan.window, PoolWindow(context.node, {plan.x[1], plan.x[2]},
                                                   context.node.attributes.Ints("kernel_shape")));
    for (int64_t column = 0; column < plan.y[2]; ++column) {
      plan.columns.push_back(RangeOf(plan.window, 1, column, plan.x[2]));
    }
    PreparedKernel prepared;
    if (type == DataType::kBfloat16) {
      prepared.compute = [plan](const KernelContext& k) {
        MaxOfBfloat16(plan, k);
        return Status::Ok();
      };
    } else if (type != DataType::kFloat) {
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

namespace {

constexpr int64_t kLeastElements = 16 << 10;  // that are worth several threads
constexpr int64_t kMostPixels = 256;          // that are summed one by one: more would lose digits

// Of one image, [pixels, channels]; a part is summed before the parts are.
struct MeanPlan {
  int64_t pixels, channels, parts;
  int64_t parts_at_once;  // that a thread takes: likely those that its own cache has
};

MeanPlan PlanMean(int64_t pixels, int64_t channels, int threads) {
  const int64_t workers =
      pixels * channels < kLeastElements ? 1 : std::clamp<int64_t>(threads, 1, pixels);
  const int64_t parts = std::max(workers, (pixels + kMostPixels - 1) / kMostPixels);
  return {pixels, channels, parts, (parts + workers - 1) / workers};
}

// `partial` has room for as many sums as there are parts.
void SumPixels(const MeanPlan& plan, const float* in, float* partial, float* out,
               ThreadPool& pool) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t channels = plan.channels;
  if (plan.parts == 1) return simd.sum_rows(in, plan.pixels, channels, out);
  pool.ParallelFor(plan.parts, plan.parts_at_once, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const Share share = ShareOf(plan.pixels, part, plan.parts);
      simd.sum_rows(in + share.begin * channels, share.end - share.begin, channels,
                    partial + part * channels);
    }
  });
  simd.sum_rows(partial, plan.parts, channels, out);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGlobalAveragePoolChannelsLast(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape x = context.InputShape(0);
    const MeanPlan plan = PlanMean(x[1] * x[2], x[3], context.threads);
    PreparedKernel prepared;
    if (plan.parts > 1) {
      prepared.scratch_bytes = static_cast<size_t>(plan.parts * plan.channels) * sizeof(float);
    }
    prepared.compute = [plan, images = x[0]](const KernelContext& k) {
      const int64_t size = plan.pixels * plan.channels;
      for (int64_t n = 0; n < images; ++n) {
        float* out = k.output<float>(0) + n * plan.channels;
        SumPixels(plan, k.input<float>(0) + n * size, k.scratch<float>(), out, k.pool());
        math::CurrentSimd().affine(out, out, plan.channels, 1.0f / static_cast<float>(plan.pixels),
                                   0.0f);
      }
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
