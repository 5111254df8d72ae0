// The process's threads for splitting one computation ("intra-op"). Idle threads sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/function_ref.h"

namespace onnxd {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 runs everything on the caller.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) over disjoint ranges that cover [0, count), each of about `grain` items
  // or more, and returns when all have finished. Several threads may call at once: while the
  // workers serve one caller, another runs its whole range itself. `body` must not throw.
  void ParallelFor(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

 private:
  void Work();
  void RunChunks();

  std::vector<std::thread> workers_;
  std::mutex caller_mutex_;  // held by the one caller that the workers serve
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  uint64_t generation_ = 0;  // guarded by mutex_
  int active_ = 0;           // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  const FunctionRef<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t count_ = 0;
  int64_t chunk_ = 1;
  std::atomic<int64_t> next_{0};
};

}  // namespace onnxd
