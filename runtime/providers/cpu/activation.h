// The activation that a fused convolution or product applies to its result.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

struct Activation {
  enum class Kind {
    kNone,
    kRelu,
    kClip,
    kSigmoid,
    kTanh,
    kHardSwish,
    kSilu,
    kLeakyRelu,
    kHardSigmoid,
    kGelu,
    kFastGelu  // Gelu by tanh
  };
  Kind kind = Kind::kNone;
  float alpha = 0.0f, beta = 0.0f;  // Clip: low, high; LeakyRelu: slope; HardSigmoid: alpha, beta

  // In place over n elements.
  void Apply(float* x, int64_t n) const;
};

// An activation as what is left of it to apply, and then bounds: Relu and Clip are bounds alone.
struct ActivationBounds {
  Activation rest;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

ActivationBounds BoundsOf(const Activation& activation);

// Reads attributes 'activation' and 'activation_params' as com.microsoft FusedConv has them; Gelu,
// FastGelu and Silu are ours.
Result<Activation> ActivationOf(const Node& node);

// What 'activation' is to say of a node that computes one without parameters; empty for others.
std::string ActivationName(const Node& node);

}  // namespace onnxd
