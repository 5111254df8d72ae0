// onnxd::ExpandDepthwise: a 1 x 1 convolution whose result goes into a depthwise one, both
// [batch, height, width, channels], as mobile networks have them. Computed in bands of rows, so
// that what the first makes is still cached when the second reads it; nothing of it is stored.
#include <algorithm>
#include <cstring>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/onednn/float_conv.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using onednn::BandShape;

constexpr size_t kX = 0, kExpandWeights = 1, kExpandBias = 2, kWeights = 3, kBias = 4;
// What a band of the expanded image may take.
constexpr int64_t kBandBytes = 320 << 10;

// One call of a primitive: rows [first, first + rows) of its source and the first of its target.
struct Call {
  int64_t source, target;
  int64_t rows;  // of the target
  size_t primitive;
};

// A band of the result. Rows that the one before left in the buffer move to its begin first.
struct Step {
  int64_t moved_from, moved;  // rows of the buffer
  Call expand, depthwise;     // an expansion of no rows is none
};

// Consecutive bands of one image, made by one thread.
struct Strip {
  int64_t image;
  std::vector<Step> steps;
};

struct ExpandPlan {
  Shape x, expanded, y;
  Window window;
  Activation expand_after, after;  // applied by us
  std::vector<BandShape> expand_shapes, depthwise_shapes;
  std::vector<onednn::Primitive> expand, depthwise;
  std::vector<Strip> strips;
  size_t buffer = 0, scratch = 0;  // bytes of a strip
};

struct StripStates : KernelState {
  std::vector<std::vector<onednn::Arguments>> expand, depthwise;  // by strip, then primitive
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
    Step step{};
    step.moved_from = from - held_begin;
    step.moved = kept;
    step.expand = {fresh, kept, to - fresh, 0};
    if (to > fresh) {
      const BandShape shape{1, to - fresh, to - fresh, 0, 0};
      step.expand.primitive = IndexOf(plan.expand_shapes, shape);
    }
    const BandShape shape{1, to - from, rows, from - top, std::max<int64_t>(0, bottom - height)};
    step.depthwise = {0, first, rows, IndexOf(plan.depthwise_shapes, shape)};
    strip.steps.push_back(step);
    held_begin = from;
    held_end = to;
    const size_t row_bytes =
        static_cast<size_t>(plan.expanded[2] * plan.expanded[3]) * sizeof(float);
    plan.buffer = std::max(plan.buffer, static_cast<size_t>(to - from) * row_bytes);
  }
  return strip;
}

Status RunStrip(const ExpandPlan& plan, size_t index, const KernelContext& k) {
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
    float* target = y + step.depthwise.target * y_row;
    ONNXD_RETURN_IF_ERROR(states.depthwise[index][step.depthwise.primitive].Execute(
        plan.depthwise[step.depthwise.primitive].handle, buffer, k.input<float>(kBias), target,
        scratch));
    plan.after.Apply(target, step.depthwise.rows * y_row);
  }
  return Status::Ok();
}

Status MakePrimitives(const onednn::FloatConv& conv, const Shape& x, const Shape& y,
                      const std::vector<BandShape>& shapes, onednn::PackedWeights& weights,
                      std::vector<onednn::Primitive>& made, size_t& scratch) {
  for (const BandShape& shape : shapes) {
    ONNXD_ASSIGN_OR_RETURN(onednn::Primitive one,
                           onednn::MakeFloatConv(conv, x, y, shape, weights));
    scratch = std::max(scratch, one.ScratchBytes());
    made.push_back(std::move(one));
  }
  return Status::Ok();
}

class ExpandDepthwise : public Kernel {
 public:
  ExpandDepthwise(Activation expand_activation, Activation activation, Initializer expand_weights,
                  Initializer weights)
      : expand_activation_(expand_activation),
        activation_(activation),
        expand_shape_(expand_weights.shape()),
        shape_(weights.shape()),
        expand_weights_(std::make_shared<onednn::PackedWeights>(std::move(expand_weights))),
        weights_(std::make_shared<onednn::PackedWeights>(std::move(weights))) {}

  bool ReadsInput(size_t i) const override { return i != kExpandWeights && i != kWeights; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(kX), &y = context.OutputShape(0);
    const int64_t channels = shape_[0];
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
                           PoolWindow(context.node, {x[1], x[2]}, {shape_[2], shape_[3]}));
    ONNXD_RETURN_IF_ERROR(onednn::CheckPads(context.node, plan->window));
    if (onednn::IsOurs(expand_activation_)) plan->expand_after = expand_activation_;
    if (onednn::IsOurs(activation_)) plan->after = activation_;
    CutIntoStrips(*plan, context.threads);
    const Window whole{{1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {x[1], x[2]}};
    const onednn::FloatConv expand{
        expand_shape_, 1, whole, expand_activation_, context.HasInput(kExpandBias), false};
    const onednn::FloatConv depthwise{
        shape_, channels, plan->window, activation_, context.HasInput(kBias), false};
    ONNXD_RETURN_IF_ERROR(MakePrimitives(expand, x, plan->expanded, plan->expand_shapes,
                                         *expand_weights_, plan->expand, plan->scratch));
    ONNXD_RETURN_IF_ERROR(MakePrimitives(depthwise, plan->expanded, y, plan->depthwise_shapes,
                                         *weights_, plan->depthwise, plan->scratch));
    plan->buffer = (plan->buffer + 63) / 64 * 64;
    prepared.scratch_bytes = (plan->buffer + plan->scratch) * plan->strips.size();
    prepared.make_state = [plan]() -> Result<std::unique_ptr<KernelState>> {
      auto states = std::make_unique<StripStates>();
      ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
        for (size_t i = 0; i < plan->strips.size(); ++i) {
          states->expand.emplace_back(plan->expand.begin(), plan->expand.end());
          states->depthwise.emplace_back(plan->depthwise.begin(), plan->depthwise.end());
        }
      }));
      return std::unique_ptr<KernelState>(std::move(states));
    };
    prepared.compute = [plan](const KernelContext& k) {
      return onednn::ForBands(k.pool(), plan->strips.size(),
                              [&](size_t i) { return RunStrip(*plan, i, k); });
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

  Activation expand_activation_, activation_;
  Shape expand_shape_, shape_;
  std::shared_ptr<onednn::PackedWeights> expand_weights_, weights_;
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
  Initializer weights[2];
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Initializer* constant = info.constant_input(i == 0 ? kExpandWeights : kWeights);
    if (constant == nullptr || constant->shape().rank() != 4) {
      return Unimplemented("ExpandDepthwise needs constant weights of rank 4");
    }
    ONNXD_RETURN_IF_ERROR(constant->Load());
    weights[i] = *constant;
  }
  const Shape &e = weights[0].shape(), &d = weights[1].shape();
  if (e[0] != d[0] || d[0] < 1 || d[1] != 1 || e[2] != 1 || e[3] != 1) {
    return InvalidArgument(StrCat(Describe(info.node), ": weights of shapes ", e.ToString(),
                                  " and ", d.ToString(), " do not follow each other"));
  }
  return std::unique_ptr<Kernel>(std::make_unique<ExpandDepthwise>(
      expand_activation, activation, std::move(weights[0]), std::move(weights[1])));
}

}  // namespace onnxd
