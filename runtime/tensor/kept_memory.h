// KeptMemory: tensors that stay, such as weights in a kernel's layout, side by side in pages of 2
// MB. With pages of 4 KB weights are waited for, and the translation of their addresses.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "runtime/tensor/tensor.h"

namespace onnxd {

// Any thread.
class KeptMemory {
 public:
  // The first `small_bytes` that are kept stay where they are: small models take no large pages.
  explicit KeptMemory(size_t small_bytes = size_t{4} << 20) : small_bytes_(small_bytes) {}

  // The same elements: in memory of this one's where that is worth it, else `tensor` itself, as
  // when the thread's MemoryAccount or the system refuses. Memory goes back to the system with the
  // last of some 32 MB of tensors, and a tensor's whole pages with it.
  Tensor Keep(Tensor tensor);

  // Not under AddressSanitizer, which watches each tensor by itself.
  static bool IsUsed();

  // The process's.
  static KeptMemory& Shared();

 private:
  class Region;

  // Null where the system refuses.
  std::shared_ptr<std::byte> Take(size_t bytes);

  const size_t small_bytes_;
  std::mutex mutex_;
  size_t seen_ = 0;                // guarded by mutex_
  std::weak_ptr<Region> current_;  // guarded by mutex_
};

}  // namespace onnxd
