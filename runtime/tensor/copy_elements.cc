#include "runtime/tensor/copy_elements.h"

#include <algorithm>
#include <cstring>

namespace onnxd {

void CopyElements(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count) {
  if (from.type() == DataType::kString) {
    std::copy_n(from.data<std::string>() + from_at, count, to.mutable_data<std::string>() + to_at);
    return;
  }
  const int64_t width = DataTypeBits(from.type()) / 8;
  if (count * width == 0) return;
  std::memcpy(static_cast<std::byte*>(to.mutable_raw()) + to_at * width,
              static_cast<const std::byte*>(from.raw()) + from_at * width,
              static_cast<size_t>(count * width));
}

}  // namespace onnxd
