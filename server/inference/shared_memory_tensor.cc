#include "server/inference/shared_memory_tensor.h"

#include <span>

#include "runtime/base/str_cat.h"
#include "server/inference/binary_tensor.h"

namespace onnxd {

Result<Tensor> TensorFromSharedMemory(const SharedMemory& memory, const SharedMemoryRange& range,
                                      DataType type, const Shape& shape, const std::string& input) {
  // What the region cannot hold is refused before memory is taken for it.
  ONNXD_RETURN_IF_ERROR(memory.Check(range.region, range.offset, range.bytes)
                            .WithContext(StrCat("input '", input, "'")));
  const Buffer bytes = AllocateBuffer(range.bytes);
  if (bytes == nullptr) return ResourceExhausted("no memory for an input in shared memory");
  const std::span<std::byte> all(bytes.get(), range.bytes);
  ONNXD_RETURN_IF_ERROR(memory.Read(range.region, range.offset, all));
  return TensorFromBytes({reinterpret_cast<const char*>(all.data()), all.size()}, bytes, type,
                         shape, input);
}

Result<uint64_t> WriteToSharedMemory(const SharedMemory& memory, const SharedMemoryRange& range,
                                     const Tensor& tensor, const std::string& output) {
  std::string bytes;
  AppendTensorBytes(bytes, tensor);
  if (bytes.size() > range.bytes) {
    return InvalidArgument(StrCat("output '", output, "' has ", bytes.size(),
                                  " bytes, its shared memory ", range.bytes));
  }
  ONNXD_RETURN_IF_ERROR(memory.Write(range.region, range.offset, std::as_bytes(std::span(bytes)))
                            .WithContext(StrCat("output '", output, "'")));
  return bytes.size();
}

}  // namespace onnxd
