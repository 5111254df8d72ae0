#include "runtime/base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <optional>
#include <system_error>
#include <thread>

#include "runtime/base/denormals.h"
#include "runtime/base/log.h"
#include "runtime/base/spin_pause.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// What one word says of a team's call: how many workers are in it, whether more may join, in how
// many chunks it is cut, and its number.
constexpr uint64_t kRunning = (uint64_t{1} << 11) - 1;
constexpr uint64_t kOpen = uint64_t{1} << 11;
constexpr int kChunksShift = 12;
constexpr int kNumberShift = 24;
constexpr int kMostThreads = 1024;

int64_t ChunksOf(uint64_t call) {
  return static_cast<int64_t>(call >> kChunksShift & ((1 << (kNumberShift - kChunksShift)) - 1));
}
uint64_t NumberOf(uint64_t call) { return call >> kNumberShift; }
bool IsOpen(uint64_t call) { return (call & kOpen) != 0; }

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

// The workers of one run and its call. The call's facts change only while no worker is in it.
struct ThreadPool::Team {
  explicit Team(int threads)
      : taken(std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(threads))) {}

  // Workers that serve it: `count` from workers_[first] on. Told in one word, since a caller reads
  // it while others come and go.
  struct alignas(int64_t) Workers {
    uint32_t first = 0, count = 0;
  };

  bool Join(uint64_t seen);
  void RunChunks(int64_t rank, uint64_t number);

  bool has_run = false;  // guarded by mutex_
  std::atomic<Workers> workers{Workers{}};
  alignas(64) std::atomic<uint64_t> call{0};
  const FunctionRef<void(int64_t, int64_t)>* body = nullptr;  // null between calls
  uint64_t floating_point_mode = 0;
  int64_t count = 0;
  int64_t chunk = 1;
  // The number of the last call whose chunk was begun, by chunk: there are as many as threads at
  // most.
  const std::unique_ptr<std::atomic<uint64_t>[]> taken;
  std::mutex mutex;  // that a caller holds while it looks for the end of its call
  std::condition_variable done;
};

struct ThreadPool::Worker {
  // The team that it serves, and its place there, from 1 on: the caller has 0.
  struct Duty {
    Team* team = nullptr;
    int64_t rank = 0;
  };
  // Of `teams`, which it indexes from 1 on; 0 without a team.
  static uint64_t Pack(size_t team, size_t rank) { return (team + 1) << 32 | rank; }
  Duty Read(const std::vector<std::unique_ptr<Team>>& teams) const {
    const uint64_t word = duty.load();
    if (word == 0) return {};
    return {teams[(word >> 32) - 1].get(), static_cast<int64_t>(word & 0xffffffff)};
  }

  alignas(64) std::atomic<uint64_t> duty{0};
  std::atomic<bool> is_asleep{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::thread thread;
};

bool ThreadPool::Team::Join(uint64_t seen) {
  uint64_t now = seen;
  while (NumberOf(now) == NumberOf(seen) && IsOpen(now)) {
    if (call.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

// Its own first, then those that nobody began.
void ThreadPool::Team::RunChunks(int64_t rank, uint64_t number) {
  const int64_t chunks = (count + chunk - 1) / chunk;
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t mine = (rank + i) % chunks;
    if (taken[static_cast<size_t>(mine)].exchange(number, std::memory_order_relaxed) == number) {
      continue;
    }
    const int64_t begin = mine * chunk;
    (*body)(begin, std::min(begin + chunk, count));
  }
}

ThreadPool::ThreadPool(int threads) {
  threads = std::clamp(threads, 1, kMostThreads);
  for (int i = 1; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
  for (int i = 0; i < threads; ++i) teams_.push_back(std::make_unique<Team>(threads));
  size_t started = 0;
  try {
    for (const auto& worker : workers_) {
      worker->thread = std::thread([this, &worker = *worker] { Work(worker); });
      ++started;
    }
  } catch (const std::system_error& error) {
    LogWarning(StrCat("runs have ", started + 1, " threads of ", threads, ": ", error.what()));
    workers_.resize(started);
    teams_.resize(started + 1);
  }
  free_teams_.store(static_cast<int>(teams_.size()), std::memory_order_relaxed);
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  for (const auto& worker : workers_) {
    { std::lock_guard lock(worker->mutex); }
    worker->wake.notify_one();
  }
  for (const auto& worker : workers_) worker->thread.join();
}

ThreadPool::Busy::~Busy() {
  if (team_ != nullptr) pool_.Leave(*team_);
  innermost_ = outer_;
}

// The outermost of this pool: what runs within a step of a run has that run's workers.
ThreadPool::Busy* ThreadPool::FindRun() {
  Busy* found = nullptr;
  for (Busy* run = innermost_; run != nullptr; run = run->outer_) {
    if (&run->pool_ == this) found = run;
  }
  return found;
}

// Null where as many runs go on as there are threads.
ThreadPool::Team* ThreadPool::TeamOf(Busy& run) {
  if (run.team_ != nullptr) return run.team_;
  if (free_teams_.load(std::memory_order_relaxed) == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const auto free =
      std::find_if(teams_.begin(), teams_.end(), [](const auto& team) { return !team->has_run; });
  if (free == teams_.end()) return nullptr;
  (*free)->has_run = true;
  ShareWorkers();
  return run.team_ = free->get();
}

void ThreadPool::Leave(Team& team) {
  std::lock_guard lock(mutex_);
  team.has_run = false;
  ShareWorkers();
}

// As many workers as there are threads besides those of the runs. One that is in a call of its
// former team stays until that is over.
void ThreadPool::ShareWorkers() {
  const auto runs =
      std::count_if(teams_.begin(), teams_.end(), [](const auto& team) { return team->has_run; });
  free_teams_.store(static_cast<int>(teams_.size()) - static_cast<int>(runs),
                    std::memory_order_relaxed);
  const int64_t shared = runs == 0 ? 0 : std::max<int64_t>(0, threads() - runs);
  for (auto i = static_cast<size_t>(shared); i < workers_.size(); ++i) {
    workers_[i]->duty.store(0);
  }
  int64_t run = 0;
  for (size_t i = 0; i < teams_.size(); ++i) {
    if (!teams_[i]->has_run) continue;
    const Share share = ShareOf(shared, run++, runs);
    const auto first = static_cast<size_t>(share.begin);
    const auto end = static_cast<size_t>(share.end);
    teams_[i]->workers.store({static_cast<uint32_t>(first), static_cast<uint32_t>(end - first)},
                             std::memory_order_release);
    for (size_t worker = first; worker < end; ++worker) {
      workers_[worker]->duty.store(Worker::Pack(i, worker - first + 1));
    }
  }
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain,
                             FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (workers_.empty() || count <= grain || on_caller_) return body(0, count);
  std::optional<Busy> alone;
  Busy* run = FindRun();
  if (run == nullptr) run = &alone.emplace(*this);
  Team* const team = TeamOf(*run);
  if (team == nullptr || team->body != nullptr || team->workers.load().count == 0) {
    return body(0, count);
  }
  Call(*team, count, grain, body);
}

void ThreadPool::Call(Team& team, int64_t count, int64_t grain,
                      FunctionRef<void(int64_t, int64_t)> body) {
  const int64_t threads = 1 + int64_t{team.workers.load(std::memory_order_acquire).count};
  team.body = &body;
  team.floating_point_mode = FloatingPointMode();
  team.count = count;
  team.chunk = std::max(grain, (count + threads - 1) / threads);
  const int64_t chunks = (count + team.chunk - 1) / team.chunk;
  const uint64_t number = NumberOf(team.call.load(std::memory_order_relaxed)) + 1;
  team.call.store(number << kNumberShift | static_cast<uint64_t>(chunks) << kChunksShift | kOpen);
  WakeWorkers(team, 0, chunks);
  team.RunChunks(0, number);
  // Nothing is left to do: a worker that still sleeps need not come.
  team.call.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto finished = [&team] {
    return (team.call.load(std::memory_order_acquire) & kRunning) == 0;
  };
  if (!Spin(kSpinForEnd, finished, [] { return false; })) {
    std::unique_lock lock(team.mutex);
    team.done.wait(lock, finished);
  }
  team.body = nullptr;
}

// Each thread of a call wakes two others, so that many are awake soon. One that sleeps on takes no
// part: whatever it would do another does.
void ThreadPool::WakeWorkers(const Team& team, int64_t rank, int64_t chunks) {
  const Team::Workers workers = team.workers.load(std::memory_order_acquire);
  for (int64_t other = 2 * rank + 1; other <= 2 * rank + 2; ++other) {
    if (other >= chunks || other > int64_t{workers.count}) return;
    Worker& worker = *workers_[workers.first + static_cast<size_t>(other) - 1];
    if (!worker.is_asleep.load()) continue;
    { std::lock_guard lock(worker.mutex); }
    worker.wake.notify_one();
  }
}

void ThreadPool::Work(Worker& worker) {
  on_caller_ = true;  // what `body` calls within
  Worker::Duty duty;
  uint64_t call = 0;
  const Team* last_team = nullptr;
  uint64_t last_number = 0;
  const auto called = [&] {
    if (stopping_.load()) return true;
    duty = worker.Read(teams_);
    if (duty.team == nullptr) return false;
    call = duty.team->call.load();
    return IsOpen(call) && duty.rank < ChunksOf(call) &&
           (duty.team != last_team || NumberOf(call) != last_number);
  };
  const auto serves = [&] { return duty.team != nullptr; };
  while (true) {
    if (!Spin(kSpinForCalls, called, serves)) {
      std::unique_lock lock(worker.mutex);
      worker.is_asleep.store(true);
      worker.wake.wait(lock, called);
      worker.is_asleep.store(false);
    }
    if (stopping_.load()) return;
    Team& team = *duty.team;
    last_team = &team;
    last_number = NumberOf(call);
    if (!team.Join(call)) continue;
    WakeWorkers(team, duty.rank, ChunksOf(call));
    SetFloatingPointMode(team.floating_point_mode);
    team.RunChunks(duty.rank, last_number);
    if ((team.call.fetch_sub(1, std::memory_order_acq_rel) & (kOpen | kRunning)) == 1) {
      std::lock_guard lock(team.mutex);  // the caller is either past its test or asleep
      team.done.notify_one();
    }
  }
}

}  // namespace onnxd
