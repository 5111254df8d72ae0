// Products of many floats with oneDNN's own layout of a constant matrix, or with one of 16-bit
// floats, where tiles multiply three
// bfloat16 parts of each float faster than vectors multiply floats (math::Simd::parts_gemm).
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

struct PartsProduct {
  int64_t m, k, n;
  std::variant<Panels, NarrowPanels> panels;
  Activation activation;
  bool has_sum;
  int threads;
};

// Whether this processor multiplies parts faster, for a product of such sizes.
bool PartsAreFaster(int64_t m, int64_t k, int64_t n);

// Of a node with the inputs A [m, k], anything, a bias [n] or none and, with has_sum, Z [m, n].
PreparedKernel PreparePartsProduct(const PartsProduct& product);

}  // namespace onnxd::onednn
