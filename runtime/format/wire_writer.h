// Protocol Buffers wire format, written into a string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/tensor/tensor.h"

namespace onnxd {

class WireWriter {
 public:
  void Reserve(size_t bytes) { out_.reserve(bytes); }
  void Varint(uint32_t field, uint64_t value) {
    Raw(uint64_t{field} << 3);
    Raw(value);
  }
  void Fixed32(uint32_t field, uint32_t value) {
    Raw(uint64_t{field} << 3 | 5);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Bytes(uint32_t field, std::string_view bytes) { Begin(field, bytes.size()).append(bytes); }
  // A field of `size` bytes, which the caller appends to what it returns.
  std::string& Begin(uint32_t field, size_t size) {
    Raw(uint64_t{field} << 3 | 2);
    Raw(size);
    return out_;
  }
  // A number of a packed list, which is a nested message of such.
  void Packed(uint64_t value) { Raw(value); }
  // A nested message: fill(WireWriter&) writes its fields.
  template <typename Fill>
  void Message(uint32_t field, Fill fill) {
    WireWriter inner;
    fill(inner);
    Bytes(field, inner.out_);
  }
  std::string Take() && { return std::move(out_); }

 private:
  void Raw(uint64_t value) {
    while (value >= 0x80) {
      out_ += static_cast<char>(value | 0x80);
      value >>= 7;
    }
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

// The fields of a TensorProto: raw data, or string data.
void WriteTensor(WireWriter& writer, std::string_view name, const Tensor& tensor);

}  // namespace onnxd
