// Executor: a fixed set of threads that run requests, first come first served, from a bounded
// queue.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "server/metrics/server_metrics.h"

namespace onnxd {

// Any thread may submit.
class Executor {
 public:
  Executor(int threads, int64_t max_queued, ServerMetrics& metrics);
  // Runs what is queued, then joins.
  ~Executor();
  // Drops what is queued, lets what runs finish, and joins; Submit refuses from then on.
  void Abandon();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues `work`, which must not throw. kUnavailable when the queue is full or
  // the executor is stopping.
  Status Submit(std::function<void()> work);

  int64_t queued() const;

 private:
  void Work();
  void Join();

  const size_t max_queued_;
  ServerMetrics& metrics_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace onnxd
