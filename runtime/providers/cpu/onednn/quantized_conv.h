// Which quantized convolutions oneDNN computes, for the pass that turns them to channels-last and
// for the kernel alike.
#pragma once

#include <functional>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/math/simd.h"

namespace onnxd::onednn {

// The constants of a QLinearConv-10. Operands: x, its scale and zero point, w[out, in / group,
// height, width], its scales and zero points, y's scale and zero point, bias.
struct QuantizedConvConstants {
  math::Quantization x, y;
  Tensor weights;             // signed, without a zero point
  std::vector<float> scales;  // [out]: from sums of products to steps of y
  std::vector<int32_t> bias;  // [out]
};

// `constant` gives the initializer behind an input, or null. kUnimplemented for nodes with operands
// that are not constant, weights whose zero point is none that signed bytes can do without, or
// scales that are not positive and finite.
Result<QuantizedConvConstants> ConstantsOf(
    const Node& node, const std::function<const Initializer*(size_t)>& constant);

// The bias of each filter less what x's zero point, so many, adds to its sums. Wraps around, as the
// sums do.
std::vector<int32_t> CompensatedBias(const QuantizedConvConstants& constants, int32_t zero);

// Whether ConstantsOf has them, without the work on the weights, and a kernel for this processor.
bool IsQuantizedConv(const Graph& graph, const Node& node);

}  // namespace onnxd::onednn
