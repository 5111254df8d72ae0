// A product of rows with a constant matrix as a primitive of oneDNN.
#pragma once

#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/onednn/packed_weights.h"
#include "runtime/providers/cpu/onednn/primitive.h"

namespace onnxd::onednn {

struct Product {
  int64_t rows, k, n;
  bool transposed;                           // the matrix is [n, k]
  dnnl::memory::data_type operands, target;  // the bias is float
  bool has_bias, has_sum;                    // the sum: of what the target held before
  Activation activation;
};

// `activation_done` tells whether oneDNN has the activation; if not, it is the caller's affair.
Result<Primitive> MakeProductPrimitive(const Product& product, PackedWeights& weights,
                                       bool& activation_done);

}  // namespace onnxd::onednn
