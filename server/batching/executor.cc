#include "server/batching/executor.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

Executor::Executor(int threads, int64_t max_queued, ServerMetrics& metrics)
    : max_queued_(static_cast<size_t>(max_queued)), metrics_(metrics) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() { Join(); }

void Executor::Abandon() {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(queue_);
  }
  Join();
}

void Executor::Join() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Status Executor::Submit(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return Unavailable("the server is stopping");
    if (queue_.size() >= max_queued_) {
      metrics_.CountShed("queue_full");
      return Unavailable(StrCat("the queue is full (", max_queued_, " requests)"));
    }
    queue_.push_back(std::move(work));
    metrics_.SetQueueDepth(static_cast<int64_t>(queue_.size()));
  }
  wake_.notify_one();
  return Status::Ok();
}

int64_t Executor::queued() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(queue_.size());
}

void Executor::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    metrics_.SetQueueDepth(static_cast<int64_t>(queue_.size()));
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace onnxd
