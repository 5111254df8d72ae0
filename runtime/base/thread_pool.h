// The process's threads for splitting one computation ("intra-op"). They stay awake while someone
// says that calls will follow each other (Busy), giving way to other threads; otherwise they sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/function_ref.h"

namespace onnxd {

// What thread `index` of `count` does of so many items: neighbours, of about as many for each, so
// that a thread finds in its own cache most of what it wrote in the step before.
struct Share {
  int64_t begin, end;
};
inline Share ShareOf(int64_t items, int64_t index, int64_t count) {
  return {items * index / count, items * (index + 1) / count};
}

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
  // workers serve one caller, another runs its whole range itself. `body` must not throw. It finds
  // the caller's floating-point mode on every thread. A range is cut alike in every call, and a
  // thread begins with the same chunk of it: what it wrote in one call it finds in its cache in the
  // next.
  void ParallelFor(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

  // While one exists, whole ranges run on its thread, of whatever pool: for work beside requests.
  class OnCaller {
   public:
    OnCaller() : before_(std::exchange(on_caller_, true)) {}
    ~OnCaller() { on_caller_ = before_; }
    OnCaller(const OnCaller&) = delete;
    OnCaller& operator=(const OnCaller&) = delete;

   private:
    const bool before_;
  };

  // While one exists, workers wait for the next call without sleeping: for the steps of one run.
  class Busy {
   public:
    explicit Busy(ThreadPool& pool) : pool_(pool), calls_(on_caller_ ? 0 : 1) {
      pool_.busy_.fetch_add(calls_, std::memory_order_relaxed);
    }
    ~Busy() { pool_.busy_.fetch_sub(calls_, std::memory_order_relaxed); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    ThreadPool& pool_;
    const int calls_;  // that follow each other
  };

 private:
  void Work(int thread);
  void RunChunks(int thread, uint64_t number);  // its own first, then those that nobody began
  bool Join(uint64_t call);

  static inline thread_local bool on_caller_ = false;

  std::vector<std::thread> workers_;
  std::atomic_flag serving_;  // the workers serve a caller
  std::mutex mutex_;          // that sleepers hold while they look
  std::condition_variable wake_;
  std::condition_variable done_;
  // Number of the call, whether workers may join it, and how many are in it; the call's facts below
  // change only while nobody is.
  std::atomic<uint64_t> call_{0};
  const FunctionRef<void(int64_t, int64_t)>* body_ = nullptr;
  uint64_t floating_point_mode_ = 0;
  int64_t count_ = 0;
  int64_t chunk_ = 1;
  // The number of the last call whose chunk was begun, by chunk: there are as many as threads at
  // most.
  const std::unique_ptr<std::atomic<uint64_t>[]> taken_;
  std::atomic<int> busy_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace onnxd
