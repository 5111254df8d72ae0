// The right side of a matrix product, packed once for math::Simd::gemm or narrow_gemm.
#pragma once

#include "runtime/base/status.h"
#include "runtime/math/simd.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// Immutable; copies share the packed elements.
struct PackedMatrix {
  const math::Simd* simd = nullptr;  // whose layout it is
  Tensor elements;                   // of float, or of uint16: those of `narrow`
  int64_t k = 0, n = 0;
  math::NarrowFloat narrow = {};

  const float* data() const { return elements.data<float>(); }
  bool is_narrow() const { return elements.type() != DataType::kFloat; }
  bool defined() const { return simd != nullptr; }
};

// How an initializer's form for math::Simd::gemm is called.
std::string GemmForm(bool transposed);
std::string NarrowGemmForm(bool transposed);

// Packs B[k, n], or B[n, k] when transposed. kResourceExhausted when memory is refused.
Result<PackedMatrix> PackMatrix(const float* b, bool transposed, int64_t k, int64_t n);
inline math::NarrowFloat NarrowFloatOf(DataType type) {
  return type == DataType::kFloat16 ? math::NarrowFloat::kFloat16 : math::NarrowFloat::kBfloat16;
}
// The same of float16 or bfloat16.
Result<PackedMatrix> PackNarrowMatrix(const Tensor& b, bool transposed, int64_t k, int64_t n);

}  // namespace onnxd
