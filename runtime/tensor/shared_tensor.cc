#include "runtime/tensor/shared_tensor.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "runtime/tensor/kept_memory.h"

namespace onnxd {
namespace {

constexpr size_t kLeastBytes = 64 << 10;
constexpr size_t kSampleStep = 4096;

// Over a few bytes of each page: what differs nearly always differs there, and what does not is
// compared anyway. FNV-1a by words.
uint64_t Fingerprint(const void* data, size_t bytes) {
  uint64_t hash = 14695981039346656037u ^ bytes;
  const auto* from = static_cast<const std::byte*>(data);
  for (size_t at = 0; at + 2 * sizeof(uint64_t) <= bytes; at += kSampleStep) {
    uint64_t words[2];
    std::memcpy(words, from + at, sizeof(words));
    for (const uint64_t word : words) hash = (hash ^ word) * 1099511628211u;
  }
  return hash;
}

class Registry {
 public:
  Tensor Share(Tensor tensor, bool stays) {
    const uint64_t key = Fingerprint(tensor.raw(), tensor.bytes());
    std::lock_guard lock(mutex_);
    auto [entry, end] = entries_.equal_range(key);
    while (entry != end) {
      const std::shared_ptr<void> owner = entry->second.owner.lock();
      if (owner == nullptr) {
        entry = entries_.erase(entry);
        continue;
      }
      if (entry->second.bytes == tensor.bytes() &&
          std::memcmp(entry->second.data, tensor.raw(), tensor.bytes()) == 0) {
        return Tensor::Wrap(tensor.type(), tensor.shape(), entry->second.data, owner);
      }
      ++entry;
    }
    if (stays) tensor = KeptMemory::Shared().Keep(std::move(tensor));
    if (entries_.size() >= sweep_at_) Sweep();
    entries_.emplace(key, Entry{tensor.owner(), tensor.mutable_raw(), tensor.bytes()});
    return tensor;
  }

 private:
  struct Entry {
    std::weak_ptr<void> owner;
    void* data;
    size_t bytes;
  };

  void Sweep() {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.owner.expired(); });
    sweep_at_ = 2 * entries_.size() + 64;
  }

  std::mutex mutex_;
  std::unordered_multimap<uint64_t, Entry> entries_;  // guarded by mutex_
  size_t sweep_at_ = 64;                              // guarded by mutex_
};

Tensor Share(Tensor tensor, bool stays) {
  static auto* const registry = new Registry();  // sessions may outlive static destruction
  if (tensor.bytes() < kLeastBytes || tensor.owner() == nullptr) return tensor;
  return registry->Share(std::move(tensor), stays);
}

}  // namespace

Tensor ShareTensor(Tensor tensor) { return Share(std::move(tensor), false); }

Tensor ShareKeptTensor(Tensor tensor) { return Share(std::move(tensor), true); }

}  // namespace onnxd
