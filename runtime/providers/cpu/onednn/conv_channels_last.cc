// onnxd::ConvChannelsLast: a 2-D convolution whose input, sum and output are
// [batch, height, width, channels]; weights stay [out, in / group, height, width]. Computed by
// oneDNN with its activation and residual sum as post-operations.
#include <cstring>

#include "runtime/kernel/kernel.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/onednn/engine.h"
#include "runtime/providers/cpu/onednn/packed_weights.h"
#include "runtime/providers/cpu/onednn/post_ops.h"
#include "runtime/providers/cpu/onednn/primitive.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using dnnl::memory;
using Dims = memory::dims;

constexpr auto kFloat = memory::data_type::f32;

struct ConvState : KernelState {
  explicit ConvState(const onednn::Primitive& conv) : arguments(conv) {}
  onednn::Arguments arguments;
};

class ConvChannelsLast : public Kernel {
 public:
  ConvChannelsLast(Activation activation, Tensor weights)
      : activation_(activation),
        weight_shape_(weights.shape()),
        weights_(std::make_shared<onednn::PackedWeights>(std::move(weights))) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape& x = context.InputShape(0);
    const Shape& w = weight_shape_;
    const int64_t group = context.node.attributes.Int("group", 1);
    ONNXD_ASSIGN_OR_RETURN(const Window window,
                           PoolWindow(context.node, {x[1], x[2]}, {w[2], w[3]}));
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
    const int64_t count = y.ElementCount();
    if (count == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    onednn::Primitive conv;
    bool activation_done = false;
    ONNXD_RETURN_IF_ERROR(
        MakePrimitive(x, y, window, group, has_bias, has_sum, conv, activation_done));
    prepared.scratch_bytes = conv.scratchpad.get_size();
    if (has_sum) prepared.in_place = {{0, 3}};
    const Activation after = activation_done ? Activation{} : activation_;
    prepared.make_state = [conv]() -> Result<std::unique_ptr<KernelState>> {
      std::unique_ptr<KernelState> state;
      ONNXD_RETURN_IF_ERROR(onednn::Guard([&] { state = std::make_unique<ConvState>(conv); }));
      return state;
    };
    prepared.compute = [=](const KernelContext& k) -> Status {
      float* target = k.output<float>(0);
      if (has_sum && k.input<float>(3) != target) {
        std::memcpy(target, k.input<float>(3), static_cast<size_t>(count) * sizeof(float));
      }
      Status status;
      ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
        status = k.state<ConvState>().arguments.Execute(
            conv.handle, k.input<float>(0), k.input<float>(2), target, k.scratch<void>());
      }));
      ONNXD_RETURN_IF_ERROR(status);
      after.Apply(target, count);
      return Status::Ok();
    };
    return prepared;
  }

 private:
  Status MakePrimitive(const Shape& x, const Shape& y, const Window& window, int64_t group,
                       bool has_bias, bool has_sum, onednn::Primitive& conv,
                       bool& activation_done) const {
    const Shape& w = weight_shape_;
    memory::desc wanted, plain;
    ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
      const auto nhwc = memory::format_tag::nhwc;
      conv.source = memory::desc({x[0], x[3], x[1], x[2]}, kFloat, nhwc);
      conv.target = memory::desc({y[0], y[3], y[1], y[2]}, kFloat, nhwc);
      const Dims filter =
          group == 1 ? Dims{w[0], w[1], w[2], w[3]} : Dims{group, w[0] / group, w[1], w[2], w[3]};
      plain = memory::desc(filter, kFloat,
                           group == 1 ? memory::format_tag::oihw : memory::format_tag::goihw);
      const memory::desc any(filter, kFloat, memory::format_tag::any);
      if (has_bias) conv.bias = memory::desc({w[0]}, kFloat, memory::format_tag::x);
      dnnl::post_ops ops;
      if (has_sum) ops.append_sum(1.0f);
      activation_done = onednn::AddActivation(activation_, ops);
      dnnl::primitive_attr attributes;
      attributes.set_post_ops(ops);
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::convolution_forward::desc description(
          dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, conv.source, any,
          conv.bias, conv.target, window.strides,
          {window.dilations[0] - 1, window.dilations[1] - 1}, window.pads_begin, window.pads_end);
      const dnnl::convolution_forward::primitive_desc chosen(description, attributes,
                                                             onednn::Engine());
      conv.handle = dnnl::convolution_forward(chosen);
      conv.scratchpad = chosen.scratchpad_desc();
      wanted = chosen.weights_desc();
    }));
    ONNXD_ASSIGN_OR_RETURN(conv.weights, weights_->InLayout(wanted, plain));
    return Status::Ok();
  }

  Activation activation_;
  Shape weight_shape_;
  std::shared_ptr<onednn::PackedWeights> weights_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeConvChannelsLast(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer* weights = info.constant_input(1);
  if (weights == nullptr || weights->shape().rank() != 4) {
    return Unimplemented("ConvChannelsLast needs constant weights of rank 4");
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, weights->Materialize());
  return std::unique_ptr<Kernel>(std::make_unique<ConvChannelsLast>(activation, std::move(tensor)));
}

}  // namespace onnxd
