#include "runtime/providers/cpu/activation.h"

#include <algorithm>
#include <map>

#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"

namespace onnxd {

void Activation::Apply(float* x, int64_t n) const {
  const math::Simd& simd = math::CurrentSimd();
  switch (kind) {
    case Kind::kNone:
      return;
    case Kind::kRelu:
      return simd.unary(math::Unary::kRelu, x, x, n);
    case Kind::kClip:
      return simd.clip(x, x, n, alpha, beta);
    case Kind::kSigmoid:
      return simd.unary(math::Unary::kSigmoid, x, x, n);
    case Kind::kTanh:
      return simd.unary(math::Unary::kTanh, x, x, n);
    case Kind::kHardSwish:
      return simd.unary(math::Unary::kHardSwish, x, x, n);
    case Kind::kSilu:
      return simd.unary(math::Unary::kSilu, x, x, n);
    case Kind::kGelu:
      return simd.unary(math::Unary::kGelu, x, x, n);
    case Kind::kFastGelu:
      return simd.unary(math::Unary::kFastGelu, x, x, n);
    case Kind::kLeakyRelu:
      return simd.leaky_relu(x, x, n, alpha);
    case Kind::kHardSigmoid:
      simd.affine(x, x, n, alpha, beta);
      return simd.clip(x, x, n, 0.0f, 1.0f);
  }
}

ActivationBounds BoundsOf(const Activation& activation) {
  ActivationBounds bounds;
  if (activation.kind == Activation::Kind::kRelu) {
    bounds.low = 0;
  } else if (activation.kind == Activation::Kind::kClip) {
    bounds.low = activation.alpha;
    bounds.high = activation.beta;
  } else {
    bounds.rest = activation;
  }
  return bounds;
}

Result<Activation> ActivationOf(const Node& node) {
  static const std::map<std::string, Activation::Kind> kinds = {
      {"", Activation::Kind::kNone},
      {"Relu", Activation::Kind::kRelu},
      {"Clip", Activation::Kind::kClip},
      {"Sigmoid", Activation::Kind::kSigmoid},
      {"Tanh", Activation::Kind::kTanh},
      {"HardSwish", Activation::Kind::kHardSwish},
      {"Silu", Activation::Kind::kSilu},
      {"LeakyRelu", Activation::Kind::kLeakyRelu},
      {"HardSigmoid", Activation::Kind::kHardSigmoid},
      {"Gelu", Activation::Kind::kGelu},
      {"FastGelu", Activation::Kind::kFastGelu}};
  const std::string name = node.attributes.String("activation", "");
  const auto found = kinds.find(name);
  if (found == kinds.end()) {
    return Unimplemented(StrCat(Describe(node), ": activation '", name, "' is not supported"));
  }
  Activation activation;
  activation.kind = found->second;
  const std::vector<float> parameters = node.attributes.Floats("activation_params");
  const bool two = activation.kind == Activation::Kind::kClip ||
                   activation.kind == Activation::Kind::kHardSigmoid;
  const size_t wanted = two ? 2 : activation.kind == Activation::Kind::kLeakyRelu ? 1 : 0;
  if (parameters.size() < wanted) {
    return InvalidArgument(
        StrCat(Describe(node), ": activation '", name, "' needs ", wanted, " activation_params"));
  }
  if (wanted > 0) activation.alpha = parameters[0];
  if (wanted > 1) activation.beta = parameters[1];
  return activation;
}

std::string ActivationName(const Node& node) {
  if (node.Is("Gelu", "com.microsoft")) return "Gelu";
  if (node.Is("FastGelu", "com.microsoft") && node.input(1) == kNoValue) return "FastGelu";
  if (node.Is("Gelu")) {
    return node.attributes.String("approximate", "none") == "tanh" ? "FastGelu" : "Gelu";
  }
  if (node.Is("Swish") && node.attributes.Float("alpha", 1) == 1) return "Silu";
  for (const char* plain : {"Relu", "Sigmoid", "Tanh", "HardSwish"}) {
    if (node.Is(plain)) return plain;
  }
  return "";
}

}  // namespace onnxd
