// CachingAllocator: keeps what is freed for the next request, since a device's own allocations wait
// for all of its work.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/base/status.h"
#include "runtime/tensor/device.h"

namespace onnxd {

// Any thread. Buffers keep their allocator alive.
class CachingAllocator : public std::enable_shared_from_this<CachingAllocator> {
 public:
  struct Source {
    std::function<void*(size_t)> allocate;  // null when there is no memory
    std::function<void(void*)> free;
  };

  // No more than `limit` bytes in use and kept together; 0: as many as there are.
  CachingAllocator(Source source, size_t limit) : source_(std::move(source)), limit_(limit) {}
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // kResourceExhausted when neither the limit nor the device has room, also not without what is
  // kept.
  Result<DeviceBuffer> Allocate(size_t bytes);
  // Gives back what nobody uses.
  void Trim();

  struct Usage {
    size_t used, kept;
  };
  Usage usage() const;

 private:
  void Free(void* block, size_t bytes);
  void TrimLocked();

  const Source source_;
  const size_t limit_;
  mutable std::mutex mutex_;
  std::multimap<size_t, void*> kept_;  // by size; guarded by mutex_
  size_t used_ = 0, kept_bytes_ = 0;   // guarded by mutex_
};

}  // namespace onnxd
