#include "runtime/base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "runtime/base/denormals.h"
#include "runtime/base/log.h"
#include "runtime/base/spin_pause.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// The layout of ThreadPool::call_.
constexpr uint64_t kOpen = uint64_t{1} << 15;
constexpr uint64_t kRunning = kOpen - 1;
constexpr int kNumberShift = 16;

// How long a thread looks for the next call before it sleeps: about what waking it would take.
constexpr std::chrono::microseconds kSpinForCalls{50};
// And for the end of one, whose other chunks are running.
constexpr std::chrono::microseconds kSpinForEnd{1000};

// Whether `done` came true within `time`, or later while `wait_on` holds. Lets other threads run.
template <typename Done, typename WaitOn>
bool Spin(std::chrono::microseconds time, Done done, WaitOn wait_on) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      SpinPause();
    }
    std::this_thread::yield();
  } while (wait_on() || std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : taken_(std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(std::max(threads, 1)))) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
  } catch (const std::system_error& error) {
    LogWarning(
        StrCat("runs have ", workers_.size() + 1, " threads of ", threads, ": ", error.what()));
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain,
                             FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (workers_.empty() || count <= grain || on_caller_ ||
      serving_.test_and_set(std::memory_order_acquire)) {
    body(0, count);
    return;
  }
  body_ = &body;
  floating_point_mode_ = FloatingPointMode();
  count_ = count;
  chunk_ = std::max(grain, (count + threads() - 1) / threads());
  const uint64_t number = (call_.load(std::memory_order_relaxed) >> kNumberShift) + 1;
  {
    std::lock_guard lock(mutex_);
    call_.store(number << kNumberShift | kOpen, std::memory_order_release);
  }
  wake_.notify_all();
  RunChunks(0, number);
  // Nothing is left to do: a worker that still sleeps need not come.
  call_.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto finished = [this] { return (call_.load(std::memory_order_acquire) & kRunning) == 0; };
  if (!Spin(kSpinForEnd, finished, [] { return false; })) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, finished);
  }
  serving_.clear(std::memory_order_release);
}

void ThreadPool::RunChunks(int thread, uint64_t number) {
  const int64_t chunks = (count_ + chunk_ - 1) / chunk_;
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t chunk = (thread + i) % chunks;
    std::atomic<uint64_t>& taken = taken_[static_cast<size_t>(chunk)];
    if (taken.exchange(number, std::memory_order_relaxed) == number) continue;
    const int64_t begin = chunk * chunk_;
    (*body_)(begin, std::min(begin + chunk_, count_));
  }
}

bool ThreadPool::Join(uint64_t call) {
  const uint64_t number = call >> kNumberShift;
  while (call >> kNumberShift == number && (call & kOpen) != 0) {
    if (call_.compare_exchange_weak(call, call + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::Work(int thread) {
  uint64_t seen = 0;
  const auto called = [&] {
    return stopping_.load(std::memory_order_relaxed) ||
           call_.load(std::memory_order_acquire) >> kNumberShift != seen;
  };
  const auto busy = [this] { return busy_.load(std::memory_order_relaxed) > 0; };
  while (true) {
    if (!Spin(kSpinForCalls, called, busy)) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, called);
    }
    if (stopping_.load(std::memory_order_relaxed)) return;
    const uint64_t call = call_.load(std::memory_order_acquire);
    seen = call >> kNumberShift;
    if (!Join(call)) continue;
    SetFloatingPointMode(floating_point_mode_);
    RunChunks(thread, seen);
    if ((call_.fetch_sub(1, std::memory_order_acq_rel) & (kOpen | kRunning)) == 1) {
      std::lock_guard lock(mutex_);  // the caller is either past its test or asleep
      done_.notify_one();
    }
  }
}

}  // namespace onnxd
