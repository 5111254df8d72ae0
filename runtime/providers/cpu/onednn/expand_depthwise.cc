// onnxd::ExpandDepthwise: a 1 x 1 convolution whose result goes into a depthwise one, both
// [batch, height, width, channels], as mobile networks have them. Computed in bands of rows, so
// that what the first makes is still cached when the second reads it; nothing of it is stored.
#include <algorithm>
#include <cstring>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/depthwise.h"
#include "runtime/providers/cpu/onednn/float_conv.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using onednn::BandShape;

constexpr size_t kX = 0, kExpandWeights = 1, kExpandBias = 2, kWeights = 3, kBias = 4;
// What a band of the expanded image may take.
constexpr int64_t kBandBytes = 320 << 10;

// Rows [source, source + rows) of the image go to those of the buffer from `target` on.
struct Expansion {
  int64_t source, target, rows;  // no rows: none
  size_t primitive;
};

// Rows [begin, end) of the result. Rows that the band before left in the buffer move to its begin,
// and the buffer then holds the expanded image from row `held` on.
struct Step {
  int64_t moved_from, moved;  // rows of the buffer
  Expansion expand;
  int64_t held, begin, end;
};

// Consecutive bands of one image, made by one thread.
struct Strip {
  int64_t image;
  std::vector<Step> steps;
};

struct ExpandPlan {
  Shape x, expanded, y;
  Window window;
  Activation expand_after;  // applied by us
  std::vector<BandShape> expand_shapes;
  std::vector<onednn::Primitive> expand;
  std::vector<Strip> strips;
  size_t buffer = 0, scratch = 0;  // bytes of a strip
};

struct StripStates : KernelState {
  std::vector<std::vector<onednn::Arguments>> expand;  // by strip, then primitive
};

size_t IndexOf(std::vector<BandShape>& shapes, const BandShape& shape) {
  const auto found = std::find(shapes.begin(), shapes.end(), shape);
  const auto index = static_cast<size_t>(found - shapes.begin());
  if (found == shapes.end()) shapes.push_back(shape);
  return index;
}

// Rows [begin, end) of one image.
Strip PlanStrip(ExpandPlan& plan, int64_t image, int64_t begin, int64_t end, int64_t band) {
  const Window& window = plan.window;
  const int64_t height = plan.x[1], reach = (window.kernel[0] - 1) * window.dilations[0] + 1;
  Strip strip{image, {}};
  int64_t held_begin = 0, held_end = 0;  // rows of the expanded image in the buffer
  for (int64_t first = begin; first < end; first += band) {
    const int64_t rows = std::min(band, end - first);
    const int64_t top = first * window.strides[0] - window.pads_begin[0];
    const int64_t bottom = top + (rows - 1) * window.strides[0] + reach;
    const int64_t from = std::clamp<int64_t>(top, 0, height);
    const int64_t to = std::clamp<int64_t>(bottom, from, height);
    const int64_t kept = std::max<int64_t>(0, held_end - from);
    const int64_t fresh = from + kept;
    Step step{from - held_begin, kept, {fresh, kept, to - fresh, 0}, from, first, first + rows};
    if (to > fresh) {
      const BandShape shape{1, to - fresh, to - fresh, 0, 0};
      step.expand.primitive = IndexOf(plan.expand_shapes, shape);
    }
    strip.steps.push_back(step);
    held_begin = from;
    held_end = to;
    const size_t row_bytes =
        static_cast<size_t>(plan.expanded[2] * plan.expanded[3]) * sizeof(float);
    plan.buffer = std::max(plan.buffer, static_cast<size_t>(to - from) * row_bytes);
  }
  return strip;
}

Status RunStrip(const ExpandPlan& plan, const DepthwiseConv& depthwise, size_t index,
                const KernelContext& k) {
  const Strip& strip = plan.strips[index];
  auto& states = k.state<StripStates>();
  auto* buffer =
      reinterpret_cast<float*>(k.scratch<std::byte>() + index * (plan.buffer + plan.scratch));
  void* scratch = reinterpret_cast<std::byte*>(buffer) + plan.buffer;
  const int64_t x_row = plan.x[2] * plan.x[3], y_row = plan.y[2] * plan.y[3];
  const int64_t row = plan.expanded[2] * plan.expanded[3];
  const float* x = k.input<float>(kX) + strip.image * plan.x[1] * x_row;
  float* y = k.output<float>(0) + strip.image * plan.y[1] * y_row;
  for (const Step& step : strip.steps) {
    if (step.moved > 0 && step.moved_from > 0) {
      std::memmove(buffer, buffer + step.moved_from * row,
                   static_cast<size_t>(step.moved * row) * sizeof(float));
    }
    if (step.expand.rows > 0) {
      float* target = buffer + step.expand.target * row;
      ONNXD_RETURN_IF_ERROR(states.expand[index][step.expand.primitive].Execute(
          plan.expand[step.expand.primitive].handle, x + step.expand.source * x_row,
          k.input<float>(kExpandBias), target, scratch));
      plan.expand_after.Apply(target, step.expand.rows * row);
    }
    depthwise.Compute({buffer, step.held, plan.x[1], plan.x[2]}, plan.window, k.input<float>(kBias),
                      step.begin, step.end, y + step.begin * y_row);
  }
  return Status::Ok();
}

class ExpandDepthwise : public Kernel {
 public:
  ExpandDepthwise(Activation expand_activation, Initializer expand_weights, DepthwiseConv depthwise)
      : expand_activation_(expand_activation),
        expand_shape_(expand_weights.shape()),
        expand_weights_(std::make_shared<onednn::PackedWeights>(std::move(expand_weights))),
        depthwise_(std::move(depthwise)) {}

  bool ReadsInput(size_t i) const override { return i != kExpandWeights && i != kWeights; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(kX), &y = context.OutputShape(0);
    const int64_t channels = depthwise_.channels();
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
    plan->expanded = Shape{x[0], x[1], x[2], channels};
    plan->y = y;
    ONNXD_ASSIGN_OR_RETURN(plan->window,
                           PoolWindow(context.node, {x[1], x[2]}, depthwise_.window()));
    ONNXD_RETURN_IF_ERROR(onednn::CheckPads(context.node, plan->window));
    if (onednn::IsOurs(expand_activation_)) plan->expand_after = expand_activation_;
    CutIntoStrips(*plan, context.threads);
    const Window whole{{1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {x[1], x[2]}};
    const onednn::FloatConv expand{
        expand_shape_, 1, whole, expand_activation_, context.HasInput(kExpandBias), false};
    for (const BandShape& shape : plan->expand_shapes) {
      ONNXD_ASSIGN_OR_RETURN(
          onednn::Primitive made,
          onednn::MakeFloatConv(expand, x, plan->expanded, shape, *expand_weights_));
      plan->scratch = std::max(plan->scratch, made.ScratchBytes());
      plan->expand.push_back(std::move(made));
    }
    plan->buffer = (plan->buffer + 63) / 64 * 64;
    prepared.scratch_bytes = (plan->buffer + plan->scratch) * plan->strips.size();
    prepared.make_state = [plan]() -> Result<std::unique_ptr<KernelState>> {
      auto states = std::make_unique<StripStates>();
      ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
        for (size_t i = 0; i < plan->strips.size(); ++i) {
          states->expand.emplace_back(plan->expand.begin(), plan->expand.end());
        }
      }));
      return std::unique_ptr<KernelState>(std::move(states));
    };
    prepared.compute = [plan, this](const KernelContext& k) {
      return onednn::ForBands(k.pool(), plan->strips.size(),
                              [&](size_t i) { return RunStrip(*plan, depthwise_, i, k); });
    };
    return prepared;
  }

 private:
  static void CutIntoStrips(ExpandPlan& plan, int threads) {
    const Shape &e = plan.expanded, &y = plan.y;
    const int64_t row_bytes = e[2] * e[3] * static_cast<int64_t>(sizeof(float));
    const int64_t overlap = std::max<int64_t>(
        0, (plan.window.kernel[0] - 1) * plan.window.dilations[0] + 1 - plan.window.strides[0]);
    const int64_t fit = kBandBytes / std::max<int64_t>(1, row_bytes) - overlap;
    const int64_t band = std::clamp<int64_t>(fit / plan.window.strides[0], 1, y[1]);
    const int64_t per_image = std::clamp<int64_t>((threads + y[0] - 1) / y[0], 1, y[1]);
    const int64_t rows = (y[1] + per_image - 1) / per_image;
    for (int64_t image = 0; image < y[0]; ++image) {
      for (int64_t first = 0; first < y[1]; first += rows) {
        plan.strips.push_back(PlanStrip(plan, image, first, std::min(y[1], first + rows), band));
      }
    }
  }

  Activation expand_activation_;
  Shape expand_shape_;
  std::shared_ptr<onednn::PackedWeights> expand_weights_;
  DepthwiseConv depthwise_;
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
  ONNXD_RETURN_IF_ERROR(expand->Load());
  ONNXD_ASSIGN_OR_RETURN(DepthwiseConv depthwise, DepthwiseConv::Create(*weights, activation));
  return std::unique_ptr<Kernel>(
      std::make_unique<ExpandDepthwise>(expand_activation, *expand, std::move(depthwise)));
}

}  // namespace onnxd
