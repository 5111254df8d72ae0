// Tensors in the shared memory of clients: the same bytes as in messages.
#pragma once

#include <string>

#include "runtime/tensor/tensor.h"
#include "server/inference/shared_memory.h"

namespace onnxd {

// The parameters shared_memory_region, _offset and _byte_size of an input or output.
struct SharedMemoryRange {
  std::string region;
  uint64_t offset = 0, bytes = 0;
};

// Fails as TensorFromBytes and SharedMemory::Read.
Result<Tensor> TensorFromSharedMemory(const SharedMemory& memory, const SharedMemoryRange& range,
                                      DataType type, const Shape& shape, const std::string& input);

// How many bytes were written. kInvalidArgument names `output` where the range is too small.
Result<uint64_t> WriteToSharedMemory(const SharedMemory& memory, const SharedMemoryRange& range,
                                     const Tensor& tensor, const std::string& output);

}  // namespace onnxd
