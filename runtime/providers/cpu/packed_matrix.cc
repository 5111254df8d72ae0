#include "runtime/providers/cpu/packed_matrix.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// Columns [first, first + width) of B; out[row * panel + column].
void PackPanel(const uint16_t* b, bool transposed, int64_t k, int64_t n, int64_t first,
               int64_t width, int64_t panel, uint16_t* out) {
  if (!transposed) {
    for (int64_t row = 0; row < k; ++row) {
      std::copy_n(b + row * n + first, width, out + row * panel);
    }
    return;
  }
  constexpr int64_t kRows = 32;  // a cache line of each column
  for (int64_t begin = 0; begin < k; begin += kRows) {
    const int64_t end = std::min(k, begin + kRows);
    for (int64_t column = 0; column < width; ++column) {
      const uint16_t* from = b + (first + column) * k;
      for (int64_t row = begin; row < end; ++row) out[row * panel + column] = from[row];
    }
  }
}

}  // namespace

std::string GemmForm(bool transposed) {
  return StrCat(transposed ? "gemm, transposed, " : "gemm, ", math::CurrentSimd().name);
}

std::string NarrowGemmForm(bool transposed) { return StrCat("narrow ", GemmForm(transposed)); }

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

Result<PackedMatrix> PackNarrowMatrix(const Tensor& b, bool transposed, int64_t k, int64_t n) {
  PackedMatrix packed;
  packed.simd = &math::CurrentSimd();
  packed.k = k;
  packed.n = n;
  packed.narrow = NarrowFloatOf(b.type());
  ONNXD_ASSIGN_OR_RETURN(
      packed.elements,
      Tensor::Create(DataType::kUint16, Shape{math::PackedBSize(*packed.simd, k, n)}));
  const int64_t panel = packed.simd->gemm_width;
  auto* out = packed.elements.mutable_data<uint16_t>();
  if (n % panel != 0) std::fill_n(out + n / panel * panel * k, panel * k, uint16_t{0});
  for (int64_t first = 0; first < n; first += panel, out += k * panel) {
    PackPanel(static_cast<const uint16_t*>(b.raw()), transposed, k, n, first,
              std::min(panel, n - first), panel, out);
  }
  return packed;
}

}  // namespace onnxd
