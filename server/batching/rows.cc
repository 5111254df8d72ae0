#include "server/batching/rows.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

Shape WithRows(const Shape& shape, int64_t rows) {
  std::vector<int64_t> dims(shape.begin(), shape.end());
  dims[0] = rows;
  return Shape(std::move(dims));
}

bool SharesRowShape(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.type() != DataType::kString && a.shape().rank() > 0 &&
         b.shape().rank() > 0 && WithRows(a.shape(), 0) == WithRows(b.shape(), 0);
}

}  // namespace

Result<Tensor> JoinRows(std::span<const Tensor> parts, const TensorMaker& make, int64_t rows) {
  if (parts.size() == 1 && (rows == 0 || parts[0].shape()[0] >= rows)) return parts[0];
  int64_t there = 0;
  for (const Tensor& part : parts) {
    if (!SharesRowShape(part, parts[0])) {
      return Internal(StrCat("parts of shapes ", parts[0].shape().ToString(), " and ",
                             part.shape().ToString(), " do not join"));
    }
    there += part.shape()[0];
  }
  rows = std::max(rows, there);
  ONNXD_ASSIGN_OR_RETURN(Tensor whole, make(parts[0].type(), WithRows(parts[0].shape(), rows)));
  auto* to = static_cast<std::byte*>(whole.mutable_raw());
  for (const Tensor& part : parts) {
    if (part.bytes() > 0) std::memcpy(to, part.raw(), part.bytes());
    to += part.bytes();
  }
  const size_t row_bytes = there > 0 ? whole.bytes() / static_cast<size_t>(rows) : 0;
  for (; there > 0 && there < rows; ++there, to += row_bytes) {
    if (row_bytes > 0) std::memcpy(to, to - row_bytes, row_bytes);
  }
  return whole;
}

Tensor RowsOf(const Tensor& whole, int64_t begin, int64_t count) {
  const int64_t rows = whole.shape()[0];
  if (begin == 0 && count == rows) return whole;
  const size_t row_bytes = rows > 0 ? whole.bytes() / static_cast<size_t>(rows) : 0;
  auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(whole.raw()));
  return Tensor::Wrap(whole.type(), WithRows(whole.shape(), count),
                      from + static_cast<size_t>(begin) * row_bytes, whole.owner());
}

}  // namespace onnxd
