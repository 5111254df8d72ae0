// Products of many floats with oneDNN's own layout of a constant matrix, or with one of 16-bit
// floats, where tiles multiply the digits of floats faster than vectors multiply floats
// (math::Simd::digits_gemm). The matrix becomes digits anew in each run, some columns at a time,
// for a fifth of the time, so that it is in memory once.
#pragma once

#include <variant>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/onednn/few_rows.h"

namespace onnxd::onednn {

// As PackNarrowMatrix makes them.
struct NarrowPanels {
  const uint16_t* data;
  math::NarrowFloat type;
};

using MatrixPanels = std::variant<Panels, NarrowPanels>;

struct DigitsProduct {
  int64_t m, k, n;
  MatrixPanels panels;
  Tensor scales;  // MakeDigitScales'
  Activation activation;
  bool has_sum;
  int threads;
};

// Whether this processor multiplies digits faster, for a product of such sizes.
bool DigitsAreFaster(int64_t m, int64_t k, int64_t n);

// What the digits of a matrix are worth, for all products with it. kResourceExhausted when memory
// is refused.
Result<Tensor> MakeDigitScales(const MatrixPanels& panels, int64_t k, int64_t n);

// Of a node with the inputs A [m, k], anything, a bias [n] or none and, with has_sum, Z [m, n].
PreparedKernel PrepareDigitsProduct(const DigitsProduct& product);

}  // namespace onnxd::onednn
