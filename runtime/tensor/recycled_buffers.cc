#include "runtime/tensor/recycled_buffers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/base/address_sanitizer.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kLeastBytes = 64 << 10;  // malloc keeps smaller ones by itself

// So that shapes that differ by a little from run to run take the same blocks.
size_t RoundedUp(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / RecycledBuffers::kSteps;
  return (bytes + step - 1) / step * step;
}

}  // namespace

std::shared_ptr<RecycledBuffers> RecycledBuffers::Make(size_t most_idle) {
  return std::shared_ptr<RecycledBuffers>(new RecycledBuffers(most_idle));
}

Buffer RecycledBuffers::Take(size_t bytes) {
  if (!IsUsed() || bytes < kLeastBytes) return AllocateBuffer(bytes);
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
  auto found = idle_.upper_bound(bytes);  // the latest of this size is before it
  if (found == idle_.begin() || (--found)->first != bytes) return nullptr;
  Buffer memory = std::move(found->second.memory);
  idle_.erase(found);
  idle_bytes_ -= bytes;
  return memory;
}

RecycledBuffers::IdleBlocks RecycledBuffers::Excess(size_t more) {
  IdleBlocks excess;
  while (!idle_.empty() && idle_bytes_ + more > most_idle_) {
    const auto oldest = std::min_element(
        idle_.begin(), idle_.end(),
        [](const auto& a, const auto& b) { return a.second.returned < b.second.returned; });
    idle_bytes_ -= oldest->first;
    excess.insert(idle_.extract(oldest));
  }
  return excess;
}

void RecycledBuffers::Return(Buffer memory, size_t bytes) {
  IdleBlocks dropped;  // freed without the lock
  std::lock_guard lock(mutex_);
  Idle block{++returned_, std::move(memory)};
  if (bytes > most_idle_) {
    dropped.emplace(bytes, std::move(block));
    return;
  }
  dropped = Excess(bytes);
  idle_.emplace(bytes, std::move(block));
  idle_bytes_ += bytes;
}

void RecycledBuffers::LimitTo(size_t most_idle) {
  IdleBlocks dropped;
  std::lock_guard lock(mutex_);
  most_idle_ = most_idle;
  dropped = Excess(0);
}

void RecycledBuffers::DropIdle() {
  IdleBlocks dropped;
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
