#include "runtime/providers/cpu/packed_bytes.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// The codes of one matrix, signed.
class Codes {
 public:
  static Result<Codes> Of(const Tensor& plain, int64_t index, int64_t count) {
    Codes codes;
    codes.from_ = static_cast<const int8_t*>(plain.raw()) + index * count;
    if (plain.type() == DataType::kInt8) return codes;
    ONNXD_ASSIGN_OR_RETURN(codes.flipped_, Tensor::Create(DataType::kInt8, Shape{count}));
    math::CurrentSimd().flip_signs(reinterpret_cast<const uint8_t*>(codes.from_),
                                   static_cast<uint8_t*>(codes.flipped_.mutable_raw()), count);
    codes.from_ = codes.flipped_.data<int8_t>();
    return codes;
  }
  const int8_t* data() const { return from_; }

 private:
  Tensor flipped_;
  const int8_t* from_ = nullptr;
};

Result<Tensor> SumColumns(const int8_t* from, bool transposed, int64_t k, int64_t n) {
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kUint32, Shape{n}));
  auto* sums = out.mutable_data<uint32_t>();
  std::fill_n(sums, n, 0);
  const int64_t outer = transposed ? n : k, inner = transposed ? k : n;
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t j = 0; j < inner; ++j, ++from) {
      sums[transposed ? i : j] += static_cast<uint32_t>(int32_t{*from});
    }
  }
  return out;
}

}  // namespace

Result<PackedByteMatrix> PackByteMatrix(const Initializer& b, bool transposed, int64_t index) {
  const math::Simd& simd = math::CurrentSimd();
  const Shape& shape = b.shape();
  const int rank = shape.rank();
  PackedByteMatrix packed;
  packed.k = shape[transposed ? rank - 1 : rank - 2];
  packed.n = shape[transposed ? rank - 2 : rank - 1];
  const int64_t k = packed.k, n = packed.n;
  const std::string suffix = StrCat(transposed ? ", transposed" : "",
                                    rank == 2 ? std::string() : StrCat(", matrix ", index));
  const auto elements = [&](const Tensor& plain) -> Result<Tensor> {
    ONNXD_ASSIGN_OR_RETURN(const Codes codes, Codes::Of(plain, index, k * n));
    ONNXD_ASSIGN_OR_RETURN(
        Tensor out, Tensor::Create(DataType::kInt8, Shape{math::PackedBytesSize(simd, k, n)}));
    simd.pack_bytes(codes.data(), transposed, k, n, out.mutable_data<int8_t>());
    return out;
  };
  const auto sums = [&](const Tensor& plain) -> Result<Tensor> {
    ONNXD_ASSIGN_OR_RETURN(const Codes codes, Codes::Of(plain, index, k * n));
    return SumColumns(codes.data(), transposed, k, n);
  };
  ONNXD_ASSIGN_OR_RETURN(packed.elements, b.InForm(StrCat("bytes, ", simd.name, suffix), elements));
  ONNXD_ASSIGN_OR_RETURN(packed.sums, b.InForm(StrCat("column sums", suffix), sums));
  return packed;
}

std::vector<int32_t> SignedZeros(std::vector<int32_t> zeros, DataType type, int64_t n) {
  const int32_t middle = type == DataType::kUint8 ? 128 : 0;
  bool any = false;
  for (int32_t& zero : zeros) {
    zero -= middle;
    any = any || zero != 0;
  }
  if (!any) return {};
  if (zeros.size() == 1) zeros.assign(static_cast<size_t>(n), zeros[0]);
  return zeros;
}

}  // namespace onnxd
