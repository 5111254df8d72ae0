// What elementwise operators compute, as expressions of the kernels' language.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "runtime/graph/graph.h"
#include "runtime/tensor/data_type.h"

namespace onnxd {

// The node's result from its inputs: `operands` are expressions without side effects, empty for
// absent inputs; `types` their types, and `result` that of the output. Half types come and go as
// f32. Of QuantizeLinear and DequantizeLinear, as if scales had the shape of x. nullopt for nodes
// that are not elementwise, or of types that the device does not compute.
std::optional<std::string> PointwiseExpression(const Node& node, std::span<const DataType> types,
                                               DataType result,
                                               std::span<const std::string> operands);

// The functions that the expressions call: text before a kernel.
const std::string& PointwiseFunctions();

}  // namespace onnxd
