// Where our own products of floats stand beside oneDNN's.
#pragma once

#include "runtime/math/simd.h"

namespace onnxd::onednn {

// Whether ours are faster than oneDNN's in matrices and convolutions of any size: measured for AVX2
// (bench/README.md); with 512-bit registers oneDNN has its better kernels.
inline bool OwnProductsAreFaster() { return math::CurrentSimd().name == "avx2"; }

// Whether they are at least as fast where there are few channels: with registers of 512 bits, too.
inline bool OwnProductsTakeFewChannels() {
  return math::CurrentSimd().few_rows != nullptr || OwnProductsAreFaster();
}

}  // namespace onnxd::onednn
