// The scores of one query of an attention, as a text is written, token after token: keys are read
// once, where they lie, and not packed for it.
#pragma once

#include <cstdint>

#include "runtime/math/simd.h"

namespace onnxd {

// scores[key] = the product of the query [width] and of that key, of keys [count, width] at a
// stride.
inline void MultiplyQuery(const float* query, const float* keys, int64_t stride, int64_t count,
                          int64_t width, float* scores) {
  math::GemmArguments g{};
  g.m = count;
  g.n = 1;
  g.k = width;
  g.a = keys;
  g.lda = stride;
  g.packed_b = query;
  g.c = scores;
  g.ldc = 1;
  math::CurrentSimd().few_columns(g);
}

}  // namespace onnxd
