#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// runtime/fusion's for the forms that have kernels here. Extended.
const GraphPass* QuantizedOperators();

// QLinearConv that no fast kernel takes: DequantizeLinear, Conv and QuantizeLinear. Basic.
const GraphPass* QuantizedConvInFloats();

// What onnxruntime's dynamic quantization writes, Cast(MatMulInteger(x, w)) * (x_scale * w_scale) (+ row):
// com.microsoft MatMulIntegerToFloat. Extended.
const GraphPass* DynamicQuantizedProducts();

// And of convolutions: Cast(ConvInteger(x, w)) (* (x_scale * w_scale)), whose sums are floats
// afterwards, as DequantizeLinear and Conv in floats, whose kernels are the faster ones. Extended.
const GraphPass* DynamicQuantizedConvs();

}  // namespace onnxd
