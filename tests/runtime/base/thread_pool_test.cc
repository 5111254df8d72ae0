#include "runtime/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace onnxd {
namespace {

// Adds up [0, count) in ranges and checks that each number came once.
void ExpectWhole(ThreadPool& pool, int64_t count, int64_t grain) {
  std::vector<int> seen(static_cast<size_t>(count), 0);
  pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), count);
}

TEST(ThreadPool, CoversTheRangeOnceWithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) ExpectWhole(pool, count, 3);
  }
}

TEST(ThreadPool, ServesManyShortCallsOneBehindTheOther) {
  ThreadPool pool(3);
  const ThreadPool::Busy busy(pool);
  for (int i = 0; i < 2000; ++i) ExpectWhole(pool, 6, 1);
}

TEST(ThreadPool, WakesAfterItSlept) {
  ThreadPool pool(2);
  for (int i = 0; i < 5; ++i) {
    ExpectWhole(pool, 100, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
}

TEST(ThreadPool, LetsSeveralThreadsCallAtOnceAndFromWithin) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&pool] {
      for (int i = 0; i < 200; ++i) {
        std::atomic<int64_t> sum{0};
        pool.ParallelFor(4, 1, [&](int64_t begin, int64_t end) {
          for (int64_t j = begin; j < end; ++j) {
            pool.ParallelFor(3, 1, [&](int64_t from, int64_t to) { sum += to - from; });
          }
        });
        EXPECT_EQ(sum.load(), 12);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// In how many ranges a call of eight items is cut.
int CountRanges(ThreadPool& pool) {
  std::atomic<int> ranges{0};
  pool.ParallelFor(8, 1, [&](int64_t, int64_t) { ++ranges; });
  return ranges.load();
}

TEST(ThreadPool, RunsThatGoOnAtOnceShareTheThreads) {
  ThreadPool pool(8);
  const ThreadPool::Busy first(pool);
  EXPECT_EQ(CountRanges(pool), 8);
  std::thread([&] {
    const ThreadPool::Busy second(pool);
    EXPECT_EQ(CountRanges(pool), 4);
    std::thread([&] { EXPECT_EQ(CountRanges(pool), 3) << "a third, for one call"; }).join();
    EXPECT_EQ(CountRanges(pool), 4);
  }).join();
  EXPECT_EQ(CountRanges(pool), 8) << "the others are over";
}

TEST(ThreadPool, AsManyRunsAsThreadsComputeAlone) {
  ThreadPool pool(2);
  const ThreadPool::Busy first(pool);
  EXPECT_EQ(CountRanges(pool), 2);
  std::thread([&] {
    const ThreadPool::Busy second(pool);
    EXPECT_EQ(CountRanges(pool), 1);
    std::thread([&] { EXPECT_EQ(CountRanges(pool), 1) << "a third"; }).join();
  }).join();
  EXPECT_EQ(CountRanges(pool), 2);
}

TEST(ThreadPool, ARunGivesUpItsThreadsWhereAnotherCame) {
  ThreadPool pool(2);
  const ThreadPool::Busy first(pool);
  EXPECT_EQ(CountRanges(pool), 2);
  std::atomic<int> step{0};
  std::thread other([&] {
    const ThreadPool::Busy second(pool);
    CountRanges(pool);
    step = 1;
    while (step != 2) std::this_thread::yield();
  });
  while (step != 1) std::this_thread::yield();
  EXPECT_EQ(CountRanges(pool), 1);
  step = 2;
  other.join();
  EXPECT_EQ(CountRanges(pool), 2);
}

TEST(ThreadPool, ARunWithinAnotherHasItsThreads) {
  ThreadPool pool(4);
  const ThreadPool::Busy outer(pool);
  {
    const ThreadPool::Busy inner(pool);
    EXPECT_EQ(CountRanges(pool), 4);
  }
  EXPECT_EQ(CountRanges(pool), 4);
}

TEST(ThreadPool, ARunBesideRequestsTakesNoThreadsFromThem) {
  ThreadPool pool(4);
  const ThreadPool::Busy run(pool);
  std::thread([&] {
    const ThreadPool::OnCaller alone;
    const ThreadPool::Busy beside(pool);
    EXPECT_EQ(CountRanges(pool), 1);
  }).join();
  EXPECT_EQ(CountRanges(pool), 4);
}

TEST(ThreadPool, ManyRunsComeAndGoAtOnce) {
  ThreadPool pool(8);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&pool, caller] {
      for (int i = 0; i < 200; ++i) {
        const ThreadPool::Busy run(pool);
        for (int step = 0; step <= caller; ++step) ExpectWhole(pool, 5 + i % 7, 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, EndsWhileItsThreadsAreAwake) {
  for (int i = 0; i < 20; ++i) {
    ThreadPool pool(4);
    ExpectWhole(pool, 8, 1);
  }
}

}  // namespace
}  // namespace onnxd
