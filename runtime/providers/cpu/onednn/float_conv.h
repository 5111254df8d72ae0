// A 2-D convolution of floats or bfloat16, [batch, height, width, channels], as a primitive of
// oneDNN.
#pragma once

#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/onednn/packed_weights.h"
#include "runtime/providers/cpu/onednn/primitive.h"

namespace onnxd::onednn {

struct FloatConv {
  Shape weights;  // [out, in / group, height, width]
  int64_t group;
  Window window;  // its padding of rows is the band's affair
  Activation activation;
  bool has_bias, has_sum;            // the sum: of what the target held before
  DataType type = DataType::kFloat;  // of all but the bias
};

// Activations that our loops apply faster than oneDNN, or that it lacks: a primitive leaves them to
// the caller.
bool IsOurs(const Activation& activation);

// The primitive of a band of the convolution that makes y of x.
Result<Primitive> MakeFloatConv(const FloatConv& conv, const Shape& x, const Shape& y,
                                const BandShape& band, PackedWeights& weights);

}  // namespace onnxd::onednn
