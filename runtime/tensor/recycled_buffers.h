// RecycledBuffers: host memory that goes from one tensor to the next without a way over the system,
// which gives large blocks page by page, cleared: a third of the time of a model whose shapes the
// data decide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/tensor/tensor.h"

namespace onnxd {

// Any thread.
class RecycledBuffers : public std::enable_shared_from_this<RecycledBuffers> {
 public:
  static constexpr size_t kSteps = 8;  // sizes of blocks between a power of two and the next
  static constexpr size_t kMostIdle = size_t{32} << 20;
  // At most `most_idle` bytes are kept that no tensor uses: those that were used last.
  static std::shared_ptr<RecycledBuffers> Make(size_t most_idle = kMostIdle);
  // From now on.
  void LimitTo(size_t most_idle);
  // Gives what no tensor uses back to the system.
  void DropIdle();

  // At least `bytes`, with any content; null when the thread's MemoryAccount or the system refuses.
  // Small blocks are AllocateBuffer's. May outlive this object.
  Buffer Take(size_t bytes);
  // A tensor in such memory, with any elements; one of strings is Tensor::Create's. Errors are
  // those of Tensor::Create, but no TensorLimit holds.
  Result<Tensor> MakeTensor(DataType type, const Shape& shape);

  size_t idle_bytes() const;

  // Not under AddressSanitizer, which watches each tensor by itself.
  static bool IsUsed();

 private:
  explicit RecycledBuffers(size_t most_idle) : most_idle_(most_idle) {}

  Buffer TakeIdle(size_t bytes);
  void Return(Buffer memory, size_t bytes);
  struct Idle {
    uint64_t returned;  // a later one has more
    Buffer memory;
  };
  using IdleBlocks = std::multimap<size_t, Idle>;  // by size
  // Takes the oldest ones out until the others, and so many bytes more, are no more than may be.
  IdleBlocks Excess(size_t more);

  mutable std::mutex mutex_;
  size_t most_idle_;       // guarded by mutex_
  IdleBlocks idle_;        // guarded by mutex_
  size_t idle_bytes_ = 0;  // guarded by mutex_
  uint64_t returned_ = 0;  // guarded by mutex_
};

}  // namespace onnxd
