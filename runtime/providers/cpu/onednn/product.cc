#include "runtime/providers/cpu/onednn/product.h"

#include "runtime/providers/cpu/onednn/post_ops.h"

namespace onnxd::onednn {

using dnnl::memory;

Result<Primitive> MakeProductPrimitive(const Product& p, PackedWeights& weights,
                                       bool& activation_done) {
  Primitive made;
  memory::desc wanted, plain;
  ONNXD_RETURN_IF_ERROR(Guard([&] {
    const auto row_major = memory::format_tag::ab;
    made.source = memory::desc({p.rows, p.k}, p.operands, row_major);
    made.target = memory::desc({p.rows, p.n}, p.target, row_major);
    plain = memory::desc({p.k, p.n}, p.operands, p.transposed ? memory::format_tag::ba : row_major);
    const memory::desc any({p.k, p.n}, p.operands, memory::format_tag::any);
    if (p.has_bias) made.bias = memory::desc({1, p.n}, memory::data_type::f32, row_major);
    dnnl::post_ops ops;
    if (p.has_sum) ops.append_sum(1.0f);
    activation_done = AddActivation(p.activation, ops);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::desc description =
        p.has_bias ? dnnl::matmul::desc(made.source, any, made.bias, made.target)
                   : dnnl::matmul::desc(made.source, any, made.target);
    const dnnl::matmul::primitive_desc chosen(description, attributes, Engine());
    made.handle = dnnl::matmul(chosen);
    made.scratchpad = chosen.scratchpad_desc();
    wanted = chosen.weights_desc();
  }));
  ONNXD_ASSIGN_OR_RETURN(made.weights, weights.InLayout(wanted, plain));
  return made;
}

}  // namespace onnxd::onednn
