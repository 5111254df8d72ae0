// The activations that the optimizer fuses into products and convolutions.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

// Attributes 'activation' and 'activation_params' as an expression of `x`, which is of compute type
// `type`; calls PointwiseFunctions. `x` itself without the attribute. kUnimplemented names one that
// the device lacks.
Result<std::string> ActivationExpression(const Node& node, std::string_view type,
                                         const std::string& x);

}  // namespace onnxd
