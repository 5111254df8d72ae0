#include "runtime/ops/matmul_nbits.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<MatMulNBitsSizes> MatMulNBitsSizesOf(const Node& node) {
  MatMulNBitsSizes z{};
  z.n = node.attributes.Int("N", 0);
  z.k = node.attributes.Int("K", 0);
  z.block = node.attributes.Int("block_size", 0);
  z.bits = node.attributes.Int("bits", 4);
  constexpr int64_t kMax = int64_t{1} << 30;
  if (z.n < 1 || z.k < 1 || z.n > kMax || z.k > kMax || z.block < 16 || z.block > kMax ||
      (z.block & (z.block - 1)) != 0 || (z.bits != 2 && z.bits != 4 && z.bits != 8)) {
    return InvalidArgument(StrCat(Describe(node), ": N, K, block_size or bits are out of range"));
  }
  return z;
}

}  // namespace onnxd
