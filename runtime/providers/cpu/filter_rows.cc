#include "runtime/providers/cpu/filter_rows.h"

#include <cstdint>

namespace onnxd {
namespace {

template <typename T>
void CopyRows(const Shape& w, const T* from, T* to) {
  const int64_t in = w[1], window = w[2] * w[3], k = in * window;
  for (int64_t o = 0; o < w[0]; ++o, from += k, to += k) {
    for (int64_t c = 0; c < in; ++c) {
      for (int64_t i = 0; i < window; ++i) to[i * in + c] = from[c * window + i];
    }
  }
}

}  // namespace

Result<Tensor> FilterRows(const Tensor& filters) {
  const Shape& w = filters.shape();
  ONNXD_ASSIGN_OR_RETURN(Tensor rows,
                         Tensor::Create(filters.type(), Shape{w[0], w[1] * w[2] * w[3]}));
  if (filters.type() == DataType::kFloat) {
    CopyRows(w, filters.data<float>(), rows.mutable_data<float>());
  } else {
    CopyRows(w, static_cast<const uint16_t*>(filters.raw()),
             static_cast<uint16_t*>(rows.mutable_raw()));
  }
  return rows;
}

}  // namespace onnxd
