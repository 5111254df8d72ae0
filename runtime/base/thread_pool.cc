#include "runtime/base/thread_pool.h"

#include <algorithm>

namespace onnxd {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain,
                             FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (workers_.empty() || count <= grain || !caller_mutex_.try_lock()) {
    body(0, count);
    return;
  }
  std::lock_guard caller(caller_mutex_, std::adopt_lock);
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    count_ = count;
    chunk_ = std::max(grain, (count + threads() - 1) / threads());
    next_.store(0, std::memory_order_relaxed);
    active_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  wake_.notify_all();
  RunChunks();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return active_ == 0; });
  body_ = nullptr;
}

void ThreadPool::RunChunks() {
  while (true) {
    const int64_t begin = next_.fetch_add(chunk_, std::memory_order_relaxed);
    if (begin >= count_) return;
    (*body_)(begin, std::min(begin + chunk_, count_));
  }
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    lock.unlock();
    RunChunks();
    lock.lock();
    if (--active_ == 0) done_.notify_one();
  }
}

}  // namespace onnxd
