#include "runtime/providers/cpu/packed_matrix.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

std::string GemmForm(bool transposed) {
  return StrCat(transposed ? "gemm, transposed, " : "gemm, ", math::CurrentSimd().name);
}

Result<PackedMatrix> PackMatrix(const float* b, bool transposed, int64_t k, int64_t n) {
  PackedMatrix packed;
  packed.simd = &math::CurrentSimd();
  packed.k = k;
  packed.n = n;
  ONNXD_ASSIGN_OR_RETURN(
      packed.elements,
      Tensor::Create(DataType::kFloat, Shape{math::PackedBSize(*packed.simd, k, n)}));
  packed.simd->pack_b(b, transposed ? k : n, transposed, k, n,
                      packed.elements.mutable_data<float>());
  return packed;
}

}  // namespace onnxd
