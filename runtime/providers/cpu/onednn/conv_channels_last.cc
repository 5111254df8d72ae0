// onnxd::ConvChannelsLast: a 2-D convolution whose input, sum and output are
// [batch, height, width, channels]; weights stay [out, in / group, height, width]. Computed by
// oneDNN with its activation and residual sum as post-operations, in bands of rows or images: one
// per thread, or as many as keep the result cached for an activation of ours. Depthwise ones, those
// of one pixel and of the smallest images, and all where our products are faster go to loops of our
// own.
#include <algorithm>
#include <cstring>

#include "runtime/base/checked_math.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/bfloat16_product.h"
#include "runtime/providers/cpu/depthwise.h"
#include "runtime/providers/cpu/onednn/float_conv.h"
#include "runtime/providers/cpu/onednn/post_ops.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {

Result<std::unique_ptr<Kernel>> MakeDepthwiseChannelsLast(const KernelInfo&);
bool TakesGroups(const Attributes&, const Shape& weights);
Result<std::unique_ptr<Kernel>> MakeGroupChannelsLast(const KernelInfo&);
bool TakesOnePixel(const KernelInfo&, const Shape& weights);
Result<std::unique_ptr<Kernel>> MakeOnePixelConv(const KernelInfo&);
bool TakesDigitsConv(const KernelInfo&, const Shape& weights);
Result<std::unique_ptr<Kernel>> MakeDigitsConv(const KernelInfo&);
bool TakesSmallImage(const KernelInfo&, const Shape& weights);
Result<std::unique_ptr<Kernel>> MakeSmallImageConv(const KernelInfo&);
bool TakesProductConv(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeProductConv(const KernelInfo&);

namespace {

struct BandStates : KernelState {
  std::vector<onednn::Arguments> arguments;  // one per band
};

// What the bands of one convolution share.
struct ConvPlan {
  Shape x, y, w;
  DataType type;
  int64_t element_bytes;
  Activation after;  // applied by us
  bool has_sum;
  std::vector<onednn::Primitive> primitives;  // one per shape of a band
  onednn::Bands cut;
  size_t scratch;  // bytes of a band
};

// Results of about this size are still in the cache when our activation reads them.
constexpr int64_t kCachedBytes = 256 << 10;

Status RunBand(const ConvPlan& plan, size_t index, const KernelContext& k) {
  const onednn::Band& band = plan.cut.bands[index];
  const int64_t count = band.OutputCount(plan.y);
  const int64_t from = band.OutputOffset(plan.y) * plan.element_bytes;
  std::byte* target = k.output<std::byte>(0) + from;
  if (plan.has_sum && k.input<std::byte>(3) != k.output<std::byte>(0)) {
    std::memcpy(target, k.input<std::byte>(3) + from,
                static_cast<size_t>(count * plan.element_bytes));
  }
  ONNXD_RETURN_IF_ERROR(k.state<BandStates>().arguments[index].Execute(
      plan.primitives[band.shape].handle,
      k.input<std::byte>(0) + band.InputOffset(plan.x) * plan.element_bytes, k.input<float>(2),
      target, k.scratch<std::byte>() + index * plan.scratch));
  plan.after.Apply(reinterpret_cast<float*>(target), count);
  return Status::Ok();
}

class ConvChannelsLast : public Kernel {
 public:
  // `is_column`: images are one pixel wide.
  ConvChannelsLast(Activation activation, Initializer weights, bool is_column)
      : activation_(activation),
        is_column_(is_column),
        type_(weights.type()),
        weight_shape_(weights.shape()),
        weights_(std::make_shared<onednn::PackedWeights>(std::move(weights))) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape& x = context.InputShape(0);
    const Shape& w = weight_shape_;
    ONNXD_ASSIGN_OR_RETURN(Window window, PoolWindow(context.node, {x[1], x[2]}, {w[2], w[3]}));
    ONNXD_RETURN_IF_ERROR(onednn::CheckPads(context.node, window));
    const Shape& y = context.OutputShape(0);
    const bool has_bias = context.HasInput(2), has_sum = context.HasInput(3);
    if (has_bias && context.InputShape(2).ElementCount() != w[0]) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": bias has shape ", context.InputShape(2).ToString()));
    }
    if (has_sum && !(context.InputShape(3) == y)) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": Z has shape ", context.InputShape(3).ToString()));
    }
    PreparedKernel prepared;
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    auto plan = std::make_shared<ConvPlan>();
    plan->type = type_;
    plan->element_bytes = type_ == DataType::kBfloat16 ? 2 : 4;
    plan->x = x;
    plan->y = y;
    plan->w = w;
    if (is_column_) LayDown(*plan, window);
    plan->has_sum = has_sum;
    if (type_ == DataType::kFloat && onednn::IsOurs(activation_)) plan->after = activation_;
    ONNXD_RETURN_IF_ERROR(PlanBands(context, window, has_bias, *plan));
    prepared.scratch_bytes = plan->scratch * plan->cut.bands.size();
    if (has_sum) prepared.in_place = {{0, 3}};
    prepared.make_state = [plan]() -> Result<std::unique_ptr<KernelState>> {
      auto states = std::make_unique<BandStates>();
      ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
        for (const onednn::Band& band : plan->cut.bands) {
          states->arguments.emplace_back(plan->primitives[band.shape]);
        }
      }));
      return std::unique_ptr<KernelState>(std::move(states));
    };
    prepared.compute = [plan](const KernelContext& k) {
      return onednn::ForBands(k.pool(), plan->cut.bands.size(),
                              [&](size_t i) { return RunBand(*plan, i, k); });
    };
    return prepared;
  }

 private:
  // Turns columns into rows, along which oneDNN is fast; the elements are the same.
  static void LayDown(ConvPlan& plan, Window& window) {
    std::swap(plan.x[1], plan.x[2]);
    std::swap(plan.y[1], plan.y[2]);
    std::swap(plan.w[2], plan.w[3]);
    for (auto* axes : {&window.kernel, &window.strides, &window.dilations, &window.pads_begin,
                       &window.pads_end, &window.output}) {
      std::swap((*axes)[0], (*axes)[1]);
    }
  }

  Status PlanBands(const PrepareContext& context, const Window& window, bool has_bias,
                   ConvPlan& plan) const {
    const Shape& y = plan.y;
    const int64_t products = weight_shape_.ElementCount() / weight_shape_[0];
    int64_t per_image = onednn::BandsPerImage(y, products, context.threads);
    if (plan.after.kind != Activation::Kind::kNone) {
      const int64_t bytes = y[1] * y[2] * y[3] * static_cast<int64_t>(sizeof(float));
      per_image = std::clamp<int64_t>(bytes / kCachedBytes, per_image, y[1]);
    }
    plan.cut = onednn::CutIntoBands(window, plan.x, y, per_image, context.threads);
    const onednn::FloatConv conv{plan.w,   context.node.attributes.Int("group", 1),
                                 window,   activation_,
                                 has_bias, plan.has_sum,
                                 type_};
    plan.scratch = 0;
    for (const onednn::BandShape& shape : plan.cut.shapes) {
      ONNXD_ASSIGN_OR_RETURN(onednn::Primitive made,
                             onednn::MakeFloatConv(conv, plan.x, plan.y, shape, *weights_));
      plan.scratch = std::max(plan.scratch, made.ScratchBytes());
      plan.primitives.push_back(std::move(made));
    }
    return Status::Ok();
  }

  Activation activation_;
  bool is_column_;
  DataType type_;
  Shape weight_shape_;
  std::shared_ptr<onednn::PackedWeights> weights_;
};

// Whether oneDNN has no loops for a depthwise window, whose numbers it takes one by one then, up to
// a hundred times slower: its generated ones want no more pixels left or right of the image than
// results that it has in registers at a time, those by products (AVX-512) no dilation.
bool IsBeyondOneDnn(const Attributes& attributes, const Shape& weights) {
#if defined(__x86_64__)
  const bool has_avx512 = math::CurrentSimd().gemm_width >= 32;
  const std::vector<int64_t> pads = attributes.Ints("pads"), steps = attributes.Ints("dilations");
  const int64_t step = steps.size() == 2 ? steps[1] : 1, results = has_avx512 ? 6 : 4;
  if (has_avx512 && step == 1) return false;
  const bool is_same = attributes.String("auto_pad", "").starts_with("SAME");
  const int64_t reach = SaturatingMultiply(weights[3] - 1, step);
  const int64_t most = is_same            ? (reach + 1) / 2
                       : pads.size() == 4 ? std::max(pads[1], pads[3])
                                          : 0;
  return most > results;
#else
  return true;
#endif
}

// Whether loops of our own take it: one filter for each channel.
bool TakesDepthwise(const Node& node, const Shape& weights) {
  return node.attributes.Int("group", 1) == weights[0] &&
         (DepthwiseConv::Takes(node.attributes, weights) ||
          (DepthwiseConv::TakesByNumbers(node.attributes, weights) &&
           IsBeyondOneDnn(node.attributes, weights)));
}

bool IsOneWide(const ValueType& type) {
  return type.shape && type.shape->size() == 4 && (*type.shape)[2].known() &&
         (*type.shape)[2].value == 1;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeConvChannelsLast(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer* weights = info.constant_input(1);
  if (weights == nullptr || weights->shape().rank() != 4) {
    return Unimplemented("ConvChannelsLast needs constant weights of rank 4");
  }
  const bool has_bias = info.node.input(2) != kNoValue;
  if (info.node.attributes.Int("filters_last", 0) != 0 ||
      (has_bias && info.InputType(2) != DataType::kFloat)) {
    return Unimplemented("ConvChannelsLast takes filters as Conv does, and a bias of floats");
  }
  dnnl::post_ops ops;
  const DataType type = info.InputType(0);
  if (weights->type() != type ||
      (type != DataType::kFloat &&
       (type != DataType::kBfloat16 || !onednn::AddActivation(activation, ops)))) {
    return DeclineType("ConvChannelsLast", type);
  }
  if (type == DataType::kBfloat16 && TakesBfloat16Windows(info, weights->shape())) {
    return MakeBfloat16Windows(info);
  }
  if (type == DataType::kFloat && TakesDepthwise(info.node, weights->shape())) {
    return MakeDepthwiseChannelsLast(info);
  }
  if (type == DataType::kFloat && TakesGroups(info.node.attributes, weights->shape())) {
    return MakeGroupChannelsLast(info);
  }
  if (type == DataType::kFloat && TakesOnePixel(info, weights->shape())) {
    return MakeOnePixelConv(info);
  }
  if (type == DataType::kFloat && TakesDigitsConv(info, weights->shape())) {
    return MakeDigitsConv(info);
  }
  if (type == DataType::kFloat && TakesSmallImage(info, weights->shape())) {
    return MakeSmallImageConv(info);
  }
  if (type == DataType::kFloat && TakesProductConv(info)) return MakeProductConv(info);
  ONNXD_RETURN_IF_ERROR(weights->Load());
  const bool is_column =
      weights->shape()[3] == 1 && IsOneWide(info.input_types[0]) && IsOneWide(info.output_types[0]);
  return std::unique_ptr<Kernel>(
      std::make_unique<ConvChannelsLast>(activation, *weights, is_column));
}

}  // namespace onnxd
