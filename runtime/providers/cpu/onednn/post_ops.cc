#include "runtime/providers/cpu/onednn/post_ops.h"

namespace onnxd::onednn {

bool AddActivation(const Activation& activation, dnnl::post_ops& ops) {
  using dnnl::algorithm;
  const auto add = [&](algorithm what, float alpha, float beta) {
    ops.append_eltwise(1.0f, what, alpha, beta);
    return true;
  };
  switch (activation.kind) {
    case Activation::Kind::kNone:
      return true;
    case Activation::Kind::kRelu:
      return add(algorithm::eltwise_relu, 0, 0);
    case Activation::Kind::kLeakyRelu:
      return add(algorithm::eltwise_relu, activation.alpha, 0);
    case Activation::Kind::kClip:
      if (!(activation.alpha <= activation.beta)) return false;
      return add(algorithm::eltwise_clip, activation.alpha, activation.beta);
    case Activation::Kind::kSigmoid:
      return add(algorithm::eltwise_logistic, 0, 0);
    case Activation::Kind::kTanh:
      return add(algorithm::eltwise_tanh, 0, 0);
    case Activation::Kind::kSilu:
      return add(algorithm::eltwise_swish, 1, 0);
    case Activation::Kind::kHardSwish:
      return add(algorithm::eltwise_hardswish, 0, 0);
    case Activation::Kind::kGelu:
      return add(algorithm::eltwise_gelu_erf, 0, 0);
    case Activation::Kind::kFastGelu:
      return add(algorithm::eltwise_gelu_tanh, 0, 0);
    case Activation::Kind::kHardSigmoid:
      return false;
  }
  return false;
}

}  // namespace onnxd::onednn
