// The process's threads for splitting one computation ("intra-op"). Runs that go on at once share
// them evenly. They stay awake while the run that they serve goes on (Busy), giving way to other
// threads; otherwise they sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
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
  // or more, and returns when all have finished. Several threads may call at once: they count
  // among `threads`, those that are left are shared evenly, and a caller that gets none runs its
  // whole range itself. So does `body` where it calls this again. `body` must not throw. It finds
  // the caller's floating-point mode on every thread. While the share stays what it is, a range is
  // cut alike in every call, and a thread begins with the same chunk of it: what it wrote in one
  // call it finds in its cache in the next.
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

 private:
  struct Team;
  struct Worker;

 public:
  // The steps of one run: while one exists, the calls of its thread go to the same workers, which
  // wait for the next call without sleeping. Takes none before a call has work for them.
  class Busy {
   public:
    explicit Busy(ThreadPool& pool) : pool_(pool), outer_(std::exchange(innermost_, this)) {}
    ~Busy();
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    friend class ThreadPool;

    ThreadPool& pool_;
    Busy* const outer_;     // of the same thread
    Team* team_ = nullptr;  // that serves it
  };

 private:
  Busy* FindRun();
  Team* TeamOf(Busy& run);
  void Leave(Team& team);
  void ShareWorkers();
  void Call(Team& team, int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);
  void WakeWorkers(const Team& team, int64_t rank, int64_t chunks);
  void Work(Worker& worker);

  static inline thread_local bool on_caller_ = false;
  static inline thread_local Busy* innermost_ = nullptr;

  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex mutex_;  // of who has which team, and of which team has which workers
  std::vector<std::unique_ptr<Team>> teams_;
  std::atomic<int> free_teams_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace onnxd
