// onnxd::ConvChannelsLast of images so small that its weights outweigh them: one product of our own
// with the windows of all pixels, whose weights are fetched ahead of their use. Threads part its
// columns, so that each weight is read by one of them, and gather what they multiply with next.
#include <algorithm>

#include "runtime/base/checked_math.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// Of the result of a window, which is gathered, and of one pixel, which is not.
constexpr int64_t kMostPixels = 64, kMostPlainPixels = 200;
constexpr int64_t kLeastChannels = 64;
constexpr int64_t kLeastWeights = 64 << 10;  // elements
constexpr int64_t kRows = 192;               // of windows at a time, or one image
// Rows of the weights at a time: a panel of them stays in the first-level cache.
constexpr int64_t kDepth = 256;
constexpr int64_t kActivationGrain = 64 << 10;  // floats of a thread, at least
constexpr int64_t kProductGrain = 256 << 10;    // multiply-adds
constexpr int64_t kPartRows = 12;               // that the product takes at a time

struct Plan : onednn::ConvGeometry {
  int64_t images_at_once;
  int64_t k;
  bool gathers;  // windows are not the pixels as they lie
  bool has_sum;
};

// Floats [first, first + count) of the window of one pixel of the result.
void GatherWindow(const Plan& plan, const float* image, int64_t pixel, int64_t first, int64_t count,
                  float* to) {
  const Window& window = plan.window;
  const int64_t top = pixel / plan.out_width * window.strides[0] - window.pads_begin[0];
  const int64_t left = pixel % plan.out_width * window.strides[1] - window.pads_begin[1];
  int64_t position = first / plan.in, channel = first % plan.in;
  while (count > 0) {
    const int64_t piece = std::min(plan.in - channel, count);
    const int64_t row = top + position / window.kernel[1] * window.dilations[0];
    const int64_t column = left + position % window.kernel[1] * window.dilations[1];
    if (row < 0 || row >= plan.height || column < 0 || column >= plan.width) {
      std::fill_n(to, piece, 0.0f);
    } else {
      std::copy_n(image + (row * plan.width + column) * plan.in + channel, piece, to);
    }
    to += piece, count -= piece, channel = 0, ++position;
  }
}

// Some rows and columns of the result.
struct Part {
  int64_t first_row, end_row, first_column, end_column;
  float* windows;  // [rows, kDepth], where they are gathered
};

class SmallImageConv : public Kernel {
 public:
  SmallImageConv(const Activation& activation, Shape weights, Tensor packed, const math::Simd& simd)
      : activation_(BoundsOf(activation)),
        weights_(std::move(weights)),
        packed_(std::move(packed)),
        simd_(simd) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(0), &y = context.OutputShape(0), &w = weights_;
    Plan plan{};
    ONNXD_ASSIGN_OR_RETURN(static_cast<onednn::ConvGeometry&>(plan),
                           onednn::GeometryOf(context.node, x, y, w));
    ONNXD_RETURN_IF_ERROR(onednn::CheckBiasAndSum(context, plan.out));
    plan.has_sum = context.HasInput(3);
    PreparedKernel prepared;
    if (plan.has_sum) prepared.in_place = {{0, 3}};
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    plan.images_at_once = std::clamp<int64_t>(kRows / plan.pixels(), 1, plan.images);
    plan.k = w[1] * w[2] * w[3];
    plan.gathers = w[2] != 1 || w[3] != 1 || !AreAll(plan.window.strides, 1) ||
                   !AreAll(plan.window.pads_begin, 0) || !AreAll(plan.window.pads_end, 0);
    if (plan.gathers) {
      const int64_t rows = plan.images_at_once * plan.pixels();
      prepared.scratch_bytes =
          static_cast<size_t>(context.threads * rows * std::min(plan.k, kDepth)) * sizeof(float);
    }
    prepared.compute = [plan, this](const KernelContext& k) {
      for (int64_t image = 0; image < plan.images; image += plan.images_at_once) {
        Run(plan, k, image, std::min(plan.images, image + plan.images_at_once));
      }
      return Status::Ok();
    };
    return prepared;
  }

 private:
  void Run(const Plan& plan, const KernelContext& k, int64_t begin, int64_t end) const {
    const int64_t rows = (end - begin) * plan.pixels(), count = rows * plan.out;
    const float* images = k.input<float>(0) + begin * plan.height * plan.width * plan.in;
    float* y = k.output<float>(0) + begin * plan.pixels() * plan.out;
    if (plan.has_sum && k.input<float>(3) != k.output<float>(0)) {
      std::copy_n(k.input<float>(3) + begin * plan.pixels() * plan.out, count, y);
    }
    const int64_t panel = simd_.gemm_width, panels = (plan.out + panel - 1) / panel;
    const int64_t threads = k.pool().threads();
    // Where threads would not get as many panels each, they part the rows of one.
    const bool parts_rows = panels % threads != 0 && rows >= 2 * kPartRows;
    const int64_t parts = parts_rows ? 2 : 1, cut = rows / 2 / kPartRows * kPartRows;
    const int64_t products = SaturatingMultiply(rows * plan.k, plan.out);
    const int64_t workers =
        std::clamp<int64_t>(products / kProductGrain, 1, std::min(panels * parts, threads));
    k.pool().ParallelFor(workers, 1, [&](int64_t begin_worker, int64_t end_worker) {
      for (int64_t worker = begin_worker; worker < end_worker; ++worker) {
        float* windows =
            plan.gathers ? k.scratch<float>() + worker * rows * std::min(plan.k, kDepth) : nullptr;
        const Share share = ShareOf(panels * parts, worker, workers);
        for (int64_t unit = share.begin; unit < share.end;) {
          const int64_t column = unit / parts * panel, part = unit % parts;
          const int64_t whole = part == 0 ? (share.end - unit) / parts : 0;
          const int64_t columns = std::max<int64_t>(whole, 1) * panel;
          Multiply(plan, k, images,
                   {part == 0 ? 0 : cut, whole == 0 && part == 0 ? cut : rows, column,
                    std::min(plan.out, column + columns), windows},
                   y);
          unit += whole == 0 ? 1 : whole * parts;
        }
      }
    });
    if (activation_.rest.kind == Activation::Kind::kNone) return;
    k.pool().ParallelFor(count, kActivationGrain, [&](int64_t first, int64_t last) {
      activation_.rest.Apply(y + first, last - first);
    });
  }

  void Multiply(const Plan& plan, const KernelContext& k, const float* images, const Part& part,
                float* y) const {
    const float* bias = k.input<float>(2);
    const float* packed = packed_.data<float>();
    const int64_t rows = part.end_row - part.first_row;
    const int64_t columns = part.end_column - part.first_column;
    for (int64_t first = 0; first < plan.k; first += kDepth) {
      const int64_t depth = std::min(kDepth, plan.k - first);
      math::GemmArguments g{rows,
                            columns,
                            depth,
                            images + part.first_row * plan.k + first,
                            plan.k,
                            packed + part.first_column * depth,
                            y + part.first_row * plan.out + part.first_column,
                            plan.out};
      if (plan.gathers) {
        Gather(plan, images, part, first, depth);
        g.a = part.windows;
        g.lda = depth;
      }
      g.accumulate = plan.has_sum || first > 0;
      if (first == 0 && bias != nullptr) g.bias = bias + part.first_column;
      if (first + depth == plan.k) g.low = activation_.low, g.high = activation_.high;
      simd_.gemm(g);
      packed += math::PackedBSize(simd_, depth, plan.out);
    }
  }

  static void Gather(const Plan& plan, const float* images, const Part& part, int64_t first,
                     int64_t depth) {
    float* to = part.windows;
    for (int64_t row = part.first_row; row < part.end_row; ++row, to += depth) {
      const int64_t image = row / plan.pixels();
      GatherWindow(plan, images + image * plan.height * plan.width * plan.in, row % plan.pixels(),
                   first, depth, to);
    }
  }

  ActivationBounds activation_;
  Shape weights_;
  Tensor packed_;
  const math::Simd& simd_;
};

}  // namespace

bool TakesSmallImage(const KernelInfo& info, const Shape& weights) {
  if (math::CurrentSimd().few_rows == nullptr ||  // less than 512 bits: see product_conv.cc
      info.node.attributes.Int("group", 1) != 1 || weights[0] < kLeastChannels ||
      weights[1] < kLeastChannels || weights.ElementCount() < kLeastWeights) {
    return false;
  }
  const auto& shape = info.output_types[0].shape;
  if (!shape || shape->size() != 4 || !(*shape)[1].known() || !(*shape)[2].known()) return false;
  const int64_t most = weights[2] * weights[3] == 1 ? kMostPlainPixels : kMostPixels;
  return SaturatingMultiply((*shape)[1].value, (*shape)[2].value) <= most;
}

// Requires weights that TakesSmallImage.
Result<std::unique_ptr<Kernel>> MakeSmallImageConv(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer& weights = *info.constant_input(1);
  const math::Simd& simd = math::CurrentSimd();
  ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                         weights.InForm(StrCat("windows, ", simd.name), [&](const Tensor& plain) {
                           return onednn::PackConvWeights(simd, plain, kDepth);
                         }));
  return std::unique_ptr<Kernel>(
      std::make_unique<SmallImageConv>(activation, weights.shape(), std::move(packed), simd));
}

}  // namespace onnxd
