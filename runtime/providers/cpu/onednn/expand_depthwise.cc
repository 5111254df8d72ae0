// onnxd::ExpandDepthwise: a 1 x 1 convolution whose result goes into a depthwise one, both
// [batch, height, width, channels], as mobile networks have them. Computed for some channels at a
// time, in bands of rows, so that what the first makes is in the first-level cache when the second
// reads it; nothing of it is stored.
#include <algorithm>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/depthwise.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr size_t kX = 0, kExpandWeights = 1, kExpandBias = 2, kWeights = 3, kBias = 4;
// What a band of some channels of the expanded image may take.
constexpr int64_t kBandBytes = 32 << 10;

// Channels that are computed together, and their part of the packed weights.
struct Slice {
  int64_t channel, count;
  int64_t panel;
};

// Slices are as wide as a panel of the GEMM. The last one has whole registers and ends with the
// last channel, so that some channels may be in two slices.
std::vector<Slice> SlicesOf(int64_t channels, const math::Simd& simd) {
  const int64_t width = simd.gemm_width, lanes = width / 2;
  std::vector<Slice> slices;
  for (int64_t channel = 0; channel < channels; channel += width) {
    const int64_t whole = (std::min(width, channels - channel) + lanes - 1) / lanes * lanes;
    const int64_t count = std::min(whole, channels);
    slices.push_back({std::min(channel, channels - count), count, channel / width});
  }
  return slices;
}

// Rows [begin, end) of the result of one image, made by one thread.
struct Strip {
  int64_t image, begin, end;
};

struct ExpandPlan {
  Shape x, y;
  Window window;
  int64_t band, slots;  // rows of the result at a time; of the expanded image that are kept
  std::vector<Strip> strips;
  std::vector<Slice> slices;
  int64_t strip_floats;  // scratch of a strip: its slots
};

// Rows of the expanded image that rows [begin, end) of the result read.
std::pair<int64_t, int64_t> RowsBelow(const ExpandPlan& plan, int64_t begin, int64_t end) {
  const Window& window = plan.window;
  const int64_t top = begin * window.strides[0] - window.pads_begin[0];
  const int64_t bottom = top + (end - begin - 1) * window.strides[0] + window.kernel[0];
  const int64_t from = std::clamp<int64_t>(top, 0, plan.x[1]);
  return {from, std::clamp<int64_t>(bottom, from, plan.x[1])};
}

void CutIntoStrips(int threads, ExpandPlan* plan) {
  const Shape& y = plan->y;
  const Window& window = plan->window;
  const int64_t row_bytes =
      plan->x[2] * plan->slices.front().count * static_cast<int64_t>(sizeof(float));
  const int64_t overlap = std::max<int64_t>(0, window.kernel[0] - window.strides[0]);
  const int64_t fit = kBandBytes / std::max<int64_t>(1, row_bytes) - overlap;
  plan->band = std::clamp<int64_t>(fit / window.strides[0], 1, y[1]);
  plan->slots = std::min(plan->x[1], (plan->band - 1) * window.strides[0] + window.kernel[0]);
  const int64_t per_image = std::clamp<int64_t>((threads + y[0] - 1) / y[0], 1, y[1]);
  const int64_t rows = (y[1] + per_image - 1) / per_image;
  for (int64_t image = 0; image < y[0]; ++image) {
    for (int64_t first = 0; first < y[1]; first += rows) {
      plan->strips.push_back({image, first, std::min(y[1], first + rows)});
    }
  }
}

class ExpandDepthwise : public Kernel {
 public:
  ExpandDepthwise(const Activation& expand_activation, int64_t in, Tensor expand_weights,
                  DepthwiseConv depthwise, const math::Simd& simd)
      : expand_activation_(BoundsOf(expand_activation)),
        in_(in),
        expand_weights_(std::move(expand_weights)),
        depthwise_(std::move(depthwise)),
        simd_(simd) {}

  bool ReadsInput(size_t i) const override { return i != kExpandWeights && i != kWeights; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(kX), &y = context.OutputShape(0);
    const int64_t channels = depthwise_.channels();
    if (x[3] != in_ || y[3] != channels) {
      return InvalidArgument(StrCat(Describe(context.node), ": X of shape ", x.ToString(),
                                    " and weights do not fit together"));
    }
    for (const size_t i : {kExpandBias, kBias}) {
      if (!context.HasInput(i) || context.InputShape(i).ElementCount() == channels) continue;
      return InvalidArgument(
          StrCat(Describe(context.node), ": bias has shape ", context.InputShape(i).ToString()));
    }
    PreparedKernel prepared;
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    auto plan = std::make_shared<ExpandPlan>();
    plan->x = x;
    plan->y = y;
    plan->slices = SlicesOf(channels, simd_);
    ONNXD_ASSIGN_OR_RETURN(plan->window,
                           PoolWindow(context.node, {x[1], x[2]}, depthwise_.window()));
    ONNXD_RETURN_IF_ERROR(onednn::CheckPads(context.node, plan->window));
    CutIntoStrips(context.threads, plan.get());
    plan->strip_floats = (plan->slots * x[2] * plan->slices.front().count + 15) / 16 * 16;
    const auto strips = static_cast<int64_t>(plan->strips.size());
    prepared.scratch_bytes = static_cast<size_t>(strips * plan->strip_floats) * sizeof(float);
    prepared.compute = [plan, strips, this](const KernelContext& k) {
      k.pool().ParallelFor(strips, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          RunStrip(*plan, plan->strips[static_cast<size_t>(i)], k,
                   k.scratch<float>() + i * plan->strip_floats);
        }
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  void RunStrip(const ExpandPlan& plan, const Strip& strip, const KernelContext& k,
                float* scratch) const {
    const int64_t channels = depthwise_.channels(), row = plan.y[2] * channels;
    float* y = k.output<float>(0) + (strip.image * plan.y[1] + strip.begin) * row;
    for (const Slice& slice : plan.slices) RunSlice(plan, strip, slice, k, scratch, y);
    depthwise_.activation().Apply(y, (strip.end - strip.begin) * row);
  }

  void RunSlice(const ExpandPlan& plan, const Strip& strip, const Slice& slice,
                const KernelContext& k, float* scratch, float* y) const {
    const int64_t x_row = plan.x[2] * plan.x[3];
    const float* x = k.input<float>(kX) + strip.image * plan.x[1] * x_row;
    const int64_t slot_floats = plan.x[2] * slice.count;
    int64_t expanded = 0;  // rows before it are there, or no longer
    for (int64_t begin = strip.begin; begin < strip.end; begin += plan.band) {
      const int64_t end = std::min(strip.end, begin + plan.band);
      const auto [from, to] = RowsBelow(plan, begin, end);
      for (int64_t row = std::max(from, expanded); row < to; ++row) {
        Expand(plan.x[2], slice, x + row * x_row, k.input<float>(kExpandBias),
               scratch + row % plan.slots * slot_floats);
      }
      expanded = std::max(expanded, to);
      depthwise_.Compute(
          {scratch, plan.x[1], plan.x[2], plan.slots, slice.channel, slice.count, slice.count},
          plan.window, k.input<float>(kBias), begin, end,
          y + (begin - strip.begin) * plan.y[2] * depthwise_.channels());
    }
  }

  // One row of the expanded image. bias: [channels] or null.
  void Expand(int64_t width, const Slice& slice, const float* x, const float* bias,
              float* out) const {
    const float* weights = expand_weights_.data<float>() + slice.panel * simd_.gemm_width * in_;
    simd_.gemm({width, slice.count, in_, x, in_, weights, out, slice.count,
                bias != nullptr ? bias + slice.channel : nullptr, false, expand_activation_.low,
                expand_activation_.high});
    expand_activation_.rest.Apply(out, width * slice.count);
  }

  ActivationBounds expand_activation_;
  int64_t in_;
  Tensor expand_weights_;  // packed for the GEMM
  DepthwiseConv depthwise_;
  const math::Simd& simd_;
};

// The activation of the first convolution, whose attributes begin with "expand_".
Result<Activation> ExpandActivationOf(const Node& node) {
  Node expand;
  expand.name = node.name;
  expand.op_type = node.op_type;
  expand.domain = node.domain;
  expand.attributes.Set("activation", node.attributes.String("expand_activation", ""));
  expand.attributes.Set("activation_params", node.attributes.Floats("expand_activation_params"));
  return ActivationOf(expand);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeExpandDepthwise(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  ONNXD_ASSIGN_OR_RETURN(const Activation expand_activation, ExpandActivationOf(info.node));
  const Initializer* expand = info.constant_input(kExpandWeights);
  const Initializer* weights = info.constant_input(kWeights);
  if (expand == nullptr || expand->shape().rank() != 4 || weights == nullptr ||
      !DepthwiseConv::Takes(info.node.attributes, weights->shape())) {
    return Unimplemented("ExpandDepthwise needs constant weights, of windows up to 7 x 7");
  }
  const Shape &e = expand->shape(), &d = weights->shape();
  if (e[0] != d[0] || e[2] != 1 || e[3] != 1) {
    return InvalidArgument(StrCat(Describe(info.node), ": weights of shapes ", e.ToString(),
                                  " and ", d.ToString(), " do not follow each other"));
  }
  const math::Simd& simd = math::CurrentSimd();
  const auto pack = [&](const Tensor& plain) -> Result<Tensor> {
    ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                           Tensor::Create(DataType::kFloat, Shape{PackedBSize(simd, e[1], e[0])}));
    const int64_t panel_floats = simd.gemm_width * e[1];
    for (const Slice& slice : SlicesOf(e[0], simd)) {
      simd.pack_b(plain.data<float>() + slice.channel * e[1], e[1], true, e[1], slice.count,
                  packed.mutable_data<float>() + slice.panel * panel_floats);
    }
    return packed;
  };
  ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                         expand->InForm(StrCat("expand_depthwise in slices, ", simd.name), pack));
  ONNXD_ASSIGN_OR_RETURN(DepthwiseConv depthwise, DepthwiseConv::Create(*weights, activation));
  return std::unique_ptr<Kernel>(std::make_unique<ExpandDepthwise>(
      expand_activation, e[1], std::move(packed), std::move(depthwise), simd));
}

}  // namespace onnxd
