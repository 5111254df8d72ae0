#include "runtime/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

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

TEST(ThreadPool, EndsWhileItsThreadsAreAwake) {
  for (int i = 0; i < 20; ++i) {
    ThreadPool pool(4);
    ExpectWhole(pool, 8, 1);
  }
}

}  // namespace
}  // namespace onnxd
