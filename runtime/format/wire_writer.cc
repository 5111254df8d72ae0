#include "runtime/format/wire_writer.h"

namespace onnxd {

void WriteTensor(WireWriter& writer, std::string_view name, const Tensor& tensor) {
  for (const int64_t dim : tensor.shape()) writer.Varint(1, static_cast<uint64_t>(dim));
  writer.Varint(2, static_cast<uint64_t>(tensor.type()));
  if (tensor.type() == DataType::kString) {
    for (const std::string& text : tensor.elements<std::string>()) writer.Bytes(6, text);
  }
  if (!name.empty()) writer.Bytes(8, name);
  if (tensor.type() != DataType::kString) {
    writer.Bytes(9, {static_cast<const char*>(tensor.raw()), tensor.bytes()});
  }
}

}  // namespace onnxd
