#include "runtime/tensor/device.h"

#include <algorithm>
#include <array>

namespace onnxd {

// These serve devices that have no call of their own for it.

Status Stream::CopyRowsWithin(const CopiedRows& rows) {
  auto* to = static_cast<std::byte*>(rows.to);
  const auto* from = static_cast<const std::byte*>(rows.from);
  for (size_t row = 0; row < rows.rows; ++row, to += rows.to_pitch, from += rows.from_pitch) {
    ONNXD_RETURN_IF_ERROR(CopyWithin(to, from, rows.bytes));
  }
  return Status::Ok();
}

Status Stream::Zero(void* to, size_t bytes) {
  static constexpr std::array<std::byte, 16 << 10> kZeros = {};
  for (size_t begin = 0; begin < bytes; begin += kZeros.size()) {
    ONNXD_RETURN_IF_ERROR(CopyIn(static_cast<std::byte*>(to) + begin, kZeros.data(),
                                 std::min(kZeros.size(), bytes - begin)));
  }
  return Status::Ok();
}

}  // namespace onnxd
