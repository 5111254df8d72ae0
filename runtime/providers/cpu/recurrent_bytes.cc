#include "runtime/providers/cpu/recurrent_bytes.h"

#include <algorithm>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/quantize_bytes.h"

namespace onnxd {
namespace {

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

int64_t FloatsFor(int64_t bytes) { return Aligned((bytes + 3) / 4); }

// Where a product's parts are in its scratch memory.
struct Parts {
  int64_t codes, wide, offsets, scales, row_sums, product, end;
};

Parts PartsFor(const PackedByteMatrix& matrix, int64_t rows) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t padded = math::PaddedBytes(simd, matrix.k);
  Parts parts{};
  parts.wide = parts.codes + FloatsFor(rows * padded);
  parts.offsets = parts.wide + (simd.wide_bytes ? FloatsFor(2 * rows * padded) : 0);
  parts.scales = parts.offsets + Aligned(matrix.n);
  parts.row_sums = parts.scales + Aligned(matrix.n);
  parts.product = parts.row_sums + Aligned(rows);
  parts.end = parts.product + Aligned(rows * matrix.n);
  return parts;
}

// One direction's numbers of constant [directions] or [directions, columns]: one or one a column.
template <typename T>
Result<std::vector<T>> NumbersOf(const KernelInfo& info, size_t input, int64_t direction,
                                 int64_t directions) {
  if (info.node.input(input) == kNoValue) return std::vector<T>{T{0}};
  const Initializer* initializer = info.constant_input(input);
  if (initializer == nullptr) return Unimplemented("a scale or zero point is not constant");
  ONNXD_ASSIGN_OR_RETURN(const Tensor plain, initializer->Materialize());
  const auto all = ElementsAs<T>(plain);
  const auto each = static_cast<int64_t>(all.size()) / directions;
  if (each < 1) return Unimplemented("a scale or zero point for each direction is wanted");
  return std::vector<T>(all.begin() + direction * each, all.begin() + (direction + 1) * each);
}

}  // namespace

Result<std::vector<ByteGates>> ByteGates::Make(const KernelInfo& info, size_t weights, size_t scale,
                                               size_t zero) {
  const Initializer* initializer = info.constant_input(weights);
  if (initializer == nullptr || initializer->shape().rank() != 3 ||
      initializer->shape().ElementCount() == 0) {
    return Unimplemented("the weights are not constant");
  }
  const int64_t directions = initializer->shape()[0];
  std::vector<ByteGates> all;
  for (int64_t d = 0; d < directions; ++d) {
    ByteGates gates;
    ONNXD_ASSIGN_OR_RETURN(gates.matrix_, PackByteMatrix(*initializer, false, d));
    const int64_t columns = gates.matrix_.n;
    ONNXD_ASSIGN_OR_RETURN(gates.scales_, NumbersOf<float>(info, scale, d, directions));
    ONNXD_ASSIGN_OR_RETURN(auto zeros, NumbersOf<int32_t>(info, zero, d, directions));
    for (const size_t count : {gates.scales_.size(), zeros.size()}) {
      if (count != 1 && static_cast<int64_t>(count) != columns) {
        return Unimplemented("a scale or zero point per column is wanted");
      }
    }
    if (gates.scales_.size() == 1) {
      gates.scales_.assign(static_cast<size_t>(columns), gates.scales_[0]);
    }
    gates.zeros_ = SignedZeros(std::move(zeros), initializer->type(), columns);
    all.push_back(std::move(gates));
  }
  return all;
}

int64_t ByteGates::ScratchFloats(int64_t rows) const { return PartsFor(matrix_, rows).end; }

void ByteGates::Multiply(const float* x, int64_t rows, float* out, bool add, float* scratch) const {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t k = matrix_.k, n = matrix_.n, padded = math::PaddedBytes(simd, k);
  const Parts parts = PartsFor(matrix_, rows);
  const math::Quantization from = DynamicFormat(x, rows * k);
  auto* codes = reinterpret_cast<uint8_t*>(scratch + parts.codes);
  auto* wide = reinterpret_cast<int16_t*>(scratch + parts.wide);
  for (int64_t row = 0; row < rows; ++row) {
    simd.quantize(x + row * k, from, codes + row * padded, k);
    if (simd.wide_bytes) simd.widen_bytes(codes + row * padded, wide + row * padded, k, false);
  }
  auto* offsets = reinterpret_cast<int32_t*>(scratch + parts.offsets);
  float* scales = scratch + parts.scales;
  const auto zero = static_cast<uint32_t>(static_cast<int32_t>(from.zero));
  simd.scale_columns(matrix_.sums.data<uint32_t>(), zero, scales_.data(), from.scale, offsets,
                     scales, n);
  math::ByteGemmArguments g{rows, n, k, codes, padded, matrix_.elements.data<int8_t>(), offsets};
  g.scales = scales;
  if (simd.wide_bytes) g.wide = wide;
  auto* row_sums = reinterpret_cast<int32_t*>(scratch + parts.row_sums);
  if (!zeros_.empty()) {
    SumRows(codes, rows, k, padded, from, row_sums);
    g.b_zeros = zeros_.data();
    g.row_sums = row_sums;
  }
  const bool apart = add && rows > 1;
  if (add && !apart) g.bias = out;  // read where the sum is written, before it is
  g.c = apart ? scratch + parts.product : out;
  g.ldc = n;
  simd.byte_gemm(g, 0, (n + simd.gemm_width - 1) / simd.gemm_width);
  if (!apart) return;
  simd.binary(math::Binary::kAdd, out, g.c, out, rows * n, 1, 1);
}

}  // namespace onnxd
