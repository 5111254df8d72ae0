#include "runtime/tensor/kept_memory.h"

#include <sys/mman.h>

#include <cstring>

#include "runtime/base/address_sanitizer.h"
#include "runtime/base/memory_account.h"

namespace onnxd {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kRegionBytes = size_t{32} << 20;
// Smaller ones are few bytes of a model; from a whole page on tensors have such pages of their own.
constexpr size_t kLeastBytes = 64 << 10;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

// Memory of which tensors take one piece after the other.
class KeptMemory::Region {
 public:
  static std::shared_ptr<Region> Make() {
    void* mapped = mmap(nullptr, kRegionBytes + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    return std::make_shared<Region>(static_cast<std::byte*>(mapped));
  }

  explicit Region(std::byte* mapped)
      : mapped_(mapped),
        begin_(
            reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(mapped), kHugePage))) {
    madvise(begin_, kRegionBytes, MADV_HUGEPAGE);
  }
  ~Region() { munmap(mapped_, kRegionBytes + kHugePage); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Null where there is no more room.
  std::byte* Take(size_t bytes) {
    const size_t rounded = RoundUp(bytes, kTensorAlignment);
    if (rounded > kRegionBytes - taken_) return nullptr;
    std::byte* const at = begin_ + taken_;
    taken_ += rounded;
    return at;
  }

 private:
  std::byte *const mapped_, *const begin_;
  size_t taken_ = 0;
};

std::shared_ptr<std::byte> KeptMemory::Take(size_t bytes) {
  MemoryAccount* const account = ChargeTo::Current();
  const auto charged = static_cast<int64_t>(bytes);
  if (account != nullptr && !account->Add(charged)) return nullptr;
  std::lock_guard lock(mutex_);
  std::shared_ptr<Region> region = current_.lock();
  std::byte* at = region == nullptr ? nullptr : region->Take(bytes);
  if (at == nullptr) {
    region = Region::Make();
    at = region == nullptr ? nullptr : region->Take(bytes);
    current_ = region;
  }
  if (at == nullptr) {
    if (account != nullptr) account->Release(charged);
    return nullptr;
  }
  return {at, [region, charged,
               held = account == nullptr ? nullptr : account->shared_from_this()](std::byte*) {
            if (held != nullptr) held->Release(charged);
          }};
}

Tensor KeptMemory::Keep(Tensor tensor) {
  const size_t bytes = tensor.bytes();
  if (!IsUsed() || tensor.type() == DataType::kString || tensor.device() != nullptr ||
      bytes < kLeastBytes || bytes >= kHugePage) {
    return tensor;
  }
  {
    std::lock_guard lock(mutex_);
    if (seen_ < small_bytes_) {
      seen_ += bytes;
      return tensor;
    }
  }
  std::shared_ptr<std::byte> memory = Take(bytes);
  if (memory == nullptr) return tensor;
  std::memcpy(memory.get(), tensor.raw(), bytes);
  void* const data = memory.get();
  return Tensor::Wrap(tensor.type(), tensor.shape(), data, std::move(memory));
}

bool KeptMemory::IsUsed() {
#ifdef ONNXD_ADDRESS_SANITIZER
  return false;
#else
  return true;
#endif
}

KeptMemory& KeptMemory::Shared() {
  static auto* const memory = new KeptMemory();  // sessions may outlive static destruction
  return *memory;
}

}  // namespace onnxd
