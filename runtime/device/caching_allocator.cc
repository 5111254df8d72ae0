#include "runtime/device/caching_allocator.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kSmall = 1 << 20;
constexpr size_t kMost = size_t{1} << 48;  // addresses have no more

// Few sizes, so that what was freed fits what comes: small blocks by 512 bytes, larger ones by an
// eighth of their power of two.
size_t RoundUp(size_t bytes) {
  size_t step = 512;
  if (bytes > kSmall) {
    while (step * 16 < bytes) step *= 2;
  }
  return bytes == 0 ? step : (bytes + step - 1) / step * step;
}

}  // namespace

CachingAllocator::~CachingAllocator() { TrimLocked(); }

Result<DeviceBuffer> CachingAllocator::Allocate(size_t bytes) {
  const auto refuse = [&](size_t used) {
    return ResourceExhausted(
        StrCat("no device memory for ", bytes, " bytes: ", used, " are in use",
               limit_ > 0 ? StrCat(", the limit is ", limit_) : std::string()));
  };
  if (bytes > kMost) return refuse(0);
  const size_t rounded = RoundUp(bytes);
  std::lock_guard lock(mutex_);
  void* block = nullptr;
  // A kept block may be larger by an eighth.
  const auto found = kept_.lower_bound(rounded);
  size_t size = rounded;
  if (found != kept_.end() && found->first <= rounded + rounded / 8) {
    size = found->first;
    block = found->second;
    kept_.erase(found);
    kept_bytes_ -= size;
  } else {
    const auto fits = [&] { return limit_ == 0 || used_ + kept_bytes_ + rounded <= limit_; };
    if (!fits()) TrimLocked();
    if (!fits()) return refuse(used_);
    block = source_.allocate(rounded);
    if (block == nullptr) {
      TrimLocked();
      block = source_.allocate(rounded);
    }
    if (block == nullptr) return refuse(used_);
  }
  used_ += size;
  return DeviceBuffer(block,
                      [self = shared_from_this(), size](void* freed) { self->Free(freed, size); });
}

void CachingAllocator::Free(void* block, size_t bytes) {
  std::lock_guard lock(mutex_);
  used_ -= bytes;
  kept_bytes_ += bytes;
  kept_.emplace(bytes, block);
}

void CachingAllocator::Trim() {
  std::lock_guard lock(mutex_);
  TrimLocked();
}

void CachingAllocator::TrimLocked() {
  for (const auto& [bytes, block] : kept_) source_.free(block);
  kept_.clear();
  kept_bytes_ = 0;
}

CachingAllocator::Usage CachingAllocator::usage() const {
  std::lock_guard lock(mutex_);
  return {used_, kept_bytes_};
}

}  // namespace onnxd
