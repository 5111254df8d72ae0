#include "runtime/session/arena_pool.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<Arena> ArenaPool::Take(size_t bytes, const std::byte* preferred) {
  Arena outgrown;  // freed before a larger one is allocated, and outside of the lock
  {
    std::lock_guard lock(mutex_);
    auto best = idle_.end();
    for (auto arena = idle_.begin(); arena != idle_.end(); ++arena) {
      if (arena->bytes < bytes) continue;
      if (arena->begin() == preferred) {
        best = arena;
        break;
      }
      if (best == idle_.end() || arena->bytes < best->bytes) best = arena;
    }
    const bool fits = best != idle_.end();
    if (!fits) {
      best = std::max_element(idle_.begin(), idle_.end(),
                              [](const Arena& a, const Arena& b) { return a.bytes < b.bytes; });
    }
    if (best != idle_.end()) {
      std::swap(*best, idle_.back());
      Arena taken = std::move(idle_.back());
      idle_.pop_back();
      if (fits) return taken;
      outgrown = std::move(taken);
    }
  }
  outgrown = {};
  return Allocate(bytes);
}

Result<Arena> ArenaPool::Allocate(size_t bytes) {
  Buffer memory = AllocateBuffer(bytes);
  if (memory == nullptr) {
    std::vector<Arena> idle;
    {
      std::lock_guard lock(mutex_);
      idle.swap(idle_);
    }
    idle.clear();
    memory = AllocateBuffer(bytes);
  }
  if (memory == nullptr) {
    return ResourceExhausted(StrCat("no memory for an arena of ", bytes, " bytes"));
  }
  return Arena{std::move(memory), bytes};
}

void ArenaPool::Return(Arena arena) {
  if (arena.memory == nullptr) return;
  std::lock_guard lock(mutex_);
  if (arena.bytes <= limit_) idle_.push_back(std::move(arena));
}

void ArenaPool::LimitTo(size_t bytes) {
  std::vector<Arena> larger;  // declared before the lock: freed after it
  std::lock_guard lock(mutex_);
  limit_ = bytes;
  std::erase_if(idle_, [&](Arena& arena) {
    if (arena.bytes <= limit_) return false;
    larger.push_back(std::move(arena));
    return true;
  });
}

}  // namespace onnxd
