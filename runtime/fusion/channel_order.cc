#include "runtime/fusion/channel_order.h"

#include <cstring>

namespace onnxd {
namespace {

// `T` has the width of the elements.
template <typename T>
Result<Tensor> Turned(const Tensor& plain) {
  int64_t dims[4] = {1, 1, 1, 1};
  const int rank = plain.shape().rank();
  for (int axis = 0; axis < rank; ++axis) dims[4 - rank + axis] = plain.shape()[axis];
  ONNXD_ASSIGN_OR_RETURN(Tensor turned,
                         Tensor::Create(plain.type(), Shape{dims[0], dims[2], dims[3], dims[1]}));
  const auto* from = static_cast<const T*>(plain.raw());
  auto* const to = static_cast<T*>(turned.mutable_raw());
  for (int64_t n = 0; n < dims[0]; ++n) {
    for (int64_t c = 0; c < dims[1]; ++c) {
      for (int64_t pixel = 0; pixel < dims[2] * dims[3]; ++pixel) {
        to[(n * dims[2] * dims[3] + pixel) * dims[1] + c] = *from++;
      }
    }
  }
  return turned;
}

}  // namespace

Result<Tensor> InChannelsLast(const Tensor& plain) {
  if (DataTypeBits(plain.type()) == 16) return Turned<uint16_t>(plain);
  if (DataTypeBits(plain.type()) == 32) return Turned<uint32_t>(plain);
  return Unimplemented("elements of another width");
}

Result<Tensor> WithZeroChannels(const Tensor& tensor, int64_t count) {
  Shape shape = tensor.shape();
  const int last = shape.rank() - 1;
  const int64_t channels = shape[last];
  shape[last] = channels + count;
  ONNXD_ASSIGN_OR_RETURN(Tensor padded, Tensor::Create(tensor.type(), shape));
  const size_t bytes = DataTypeBits(tensor.type()) / 8;
  const size_t from = static_cast<size_t>(channels) * bytes;
  const size_t to = static_cast<size_t>(channels + count) * bytes;
  std::memset(padded.mutable_raw(), 0, padded.bytes());
  for (size_t row = 0; row < tensor.bytes() / from; ++row) {
    std::memcpy(static_cast<std::byte*>(padded.mutable_raw()) + row * to,
                static_cast<const std::byte*>(tensor.raw()) + row * from, from);
  }
  return padded;
}

}  // namespace onnxd
