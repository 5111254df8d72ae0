// ArenaPool: the host memory that runs of a graph work in. One run holds one arena, whatever shapes
// it has, so that a graph keeps as many as it had runs at once, not as many as it has plans.
#pragma once

#include <cstddef>
#include <limits>
#include <mutex>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

struct Arena {
  Buffer memory;  // null: there is none
  size_t bytes = 0;

  std::byte* begin() const { return memory.get(); }
};

// May be used from any thread.
class ArenaPool {
 public:
  // At least `bytes`, with any content. The one at `preferred` if it is idle and large enough, else
  // the smallest that is, else a new one in place of the largest idle one. kResourceExhausted when
  // there is no memory for it.
  Result<Arena> Take(size_t bytes, const std::byte* preferred);
  void Return(Arena arena);  // one without memory is nothing

  // Larger ones go back to the system: idle ones now, those in use when they return.
  void LimitTo(size_t bytes);

 private:
  Result<Arena> Allocate(size_t bytes);

  std::mutex mutex_;
  std::vector<Arena> idle_;                            // guarded by mutex_
  size_t limit_ = std::numeric_limits<size_t>::max();  // guarded by mutex_
};

}  // namespace onnxd
