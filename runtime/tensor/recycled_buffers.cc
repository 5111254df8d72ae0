#include "runtime/tensor/recycled_buffers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/base/address_sanitizer.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kLeastBytes = 64 << 10;  // malloc keeps smaller ones by itself
constexpr size_t kSteps = 8;              // sizes between a power of two and the next

// So that shapes that differ by a little from run to run take the same blocks.
size_t RoundedUp(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / kSteps;
  return (bytes + step - 1) / step * step;
}

}  // namespace

std::shared_ptr<RecycledBuffers> RecycledBuffers::Make(size_t most_idle) {
  return std::shared_ptr<RecycledBuffers>(new RecycledBuffers(most_idle));
}

Buffer RecycledBuffers::Take(size_t bytes) {
  if (!IsUsed() || bytes < kLeastBytes || bytes > most_idle_) return AllocateBuffer(bytes);
  const size_t rounded = RoundedUp(bytes);
  Buffer memory = TakeIdle(rounded);
  if (memory == nullptr) memory = AllocateBuffer(rounded);
  if (memory == nullptr) {
    DropIdle();
    memory = AllocateBuffer(rounded);
  }
  if (memory == nullptr) return nullptr;
  std::byte* const begin = memory.get();
  return Buffer(begin,
                [rounded, memory = std::move(memory), weak = weak_from_this()](std::byte*) mutable {
                  if (const auto owner = weak.lock()) owner->Return(std::move(memory), rounded);
                });
}

Result<Tensor> RecycledBuffers::MakeTensor(DataType type, const Shape& shape) {
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  const auto bytes = TensorBytes(type, shape.ElementCount());
  if (type == DataType::kString || !bytes) return Tensor::Create(type, shape);
  Buffer memory = Take(static_cast<size_t>(*bytes));
  if (memory == nullptr) return ResourceExhausted(StrCat("no memory for ", Describe(type, shape)));
  void* const elements = memory.get();
  return Tensor::Wrap(type, shape, elements, std::move(memory));
}

size_t RecycledBuffers::idle_bytes() const {
  std::lock_guard lock(mutex_);
  return idle_bytes_;
}

Buffer RecycledBuffers::TakeIdle(size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto found = idle_.find(bytes);
  if (found == idle_.end()) return nullptr;
  Buffer memory = std::move(found->second);
  idle_.erase(found);
  idle_bytes_ -= bytes;
  return memory;
}

void RecycledBuffers::Return(Buffer memory, size_t bytes) {
  std::multimap<size_t, Buffer> dropped;  // freed without the lock
  std::lock_guard lock(mutex_);
  // The largest first: they make room for most.
  while (!idle_.empty() && idle_bytes_ + bytes > most_idle_) {
    auto node = idle_.extract(std::prev(idle_.end()));
    idle_bytes_ -= node.key();
    dropped.insert(std::move(node));
  }
  idle_.emplace(bytes, std::move(memory));
  idle_bytes_ += bytes;
}

void RecycledBuffers::DropIdle() {
  std::multimap<size_t, Buffer> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(idle_);
  idle_bytes_ = 0;
}

bool RecycledBuffers::IsUsed() {
#ifdef ONNXD_ADDRESS_SANITIZER
  return false;
#else
  return true;
#endif
}

}  // namespace onnxd
