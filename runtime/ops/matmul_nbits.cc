#include "runtime/ops/matmul_nbits.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

bool MatMulNBitsSizes::InRange() const {
  constexpr int64_t kMax = int64_t{1} << 30;
  return n >= 1 && k >= 1 && n <= kMax && k <= kMax && block >= 16 && block <= kMax &&
         (block & (block - 1)) == 0 && (bits == 2 || bits == 4 || bits == 8);
}

Result<MatMulNBitsSizes> MatMulNBitsSizesOf(const Node& node) {
  MatMulNBitsSizes z{};
  z.n = node.attributes.Int("N", 0);
  z.k = node.attributes.Int("K", 0);
  z.block = node.attributes.Int("block_size", 0);
  z.bits = node.attributes.Int("bits", 4);
  if (!z.InRange()) {
    return InvalidArgument(StrCat(Describe(node), ": N, K, block_size or bits are out of range"));
  }
  return z;
}

}  // namespace onnxd
