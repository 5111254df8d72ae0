#include "runtime/providers/cpu/onednn/float_conv.h"

#include "runtime/providers/cpu/onednn/post_ops.h"

namespace onnxd::onednn {

using dnnl::memory;

bool IsOurs(const Activation& activation) {
  using Kind = Activation::Kind;
  const bool crossed = !(activation.alpha <= activation.beta);  // which oneDNN refuses
  return activation.kind == Kind::kSilu || activation.kind == Kind::kSigmoid ||
         activation.kind == Kind::kHardSigmoid || (activation.kind == Kind::kClip && crossed);
}

Result<Primitive> MakeFloatConv(const FloatConv& conv, const Shape& x, const Shape& y,
                                const BandShape& band, PackedWeights& weights) {
  constexpr auto kFloat = memory::data_type::f32;
  const auto type = TypeOf(conv.type);
  const Shape& w = conv.weights;
  const Window& window = conv.window;
  Primitive made;
  memory::desc wanted, plain;
  ONNXD_RETURN_IF_ERROR(Guard([&] {
    const auto nhwc = memory::format_tag::nhwc;
    made.source = memory::desc({band.images, x[3], band.input_rows, x[2]}, type, nhwc);
    made.target = memory::desc({band.images, y[3], band.rows, y[2]}, type, nhwc);
    const memory::dims filter = conv.group == 1
                                    ? memory::dims{w[0], w[1], w[2], w[3]}
                                    : memory::dims{conv.group, w[0] / conv.group, w[1], w[2], w[3]};
    plain = memory::desc(filter, type,
                         conv.group == 1 ? memory::format_tag::oihw : memory::format_tag::goihw);
    const memory::desc any(filter, type, memory::format_tag::any);
    if (conv.has_bias) made.bias = memory::desc({w[0]}, kFloat, memory::format_tag::x);
    dnnl::post_ops ops;
    if (conv.has_sum) ops.append_sum(1.0f);
    if (conv.type == DataType::kBfloat16 || !IsOurs(conv.activation))
      AddActivation(conv.activation, ops);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::convolution_forward::desc description(
        dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, made.source, any,
        made.bias, made.target, window.strides, {window.dilations[0] - 1, window.dilations[1] - 1},
        {band.pad_top, window.pads_begin[1]}, {band.pad_bottom, window.pads_end[1]});
    const dnnl::convolution_forward::primitive_desc chosen(description, attributes, Engine());
    made.handle = dnnl::convolution_forward(chosen);
    made.scratchpad = chosen.scratchpad_desc();
    wanted = chosen.weights_desc();
  }));
  ONNXD_ASSIGN_OR_RETURN(made.weights, weights.InLayout(wanted, plain));
  return made;
}

}  // namespace onnxd::onednn
