#include "server/batching/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace onnxd {
namespace {

TEST(Executor, RefusesWhatItsQueueCannotHold) {
  ServerMetrics metrics;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::promise<void> started;
  std::atomic<int> ran{0};
  {
    Executor executor(1, 2, metrics);
    ASSERT_TRUE(executor
                    .Submit([&] {
                      started.set_value();
                      released.wait();
                      ++ran;
                    })
                    .ok());
    started.get_future().wait();
    EXPECT_TRUE(executor.Submit([&] { ++ran; }).ok());
    EXPECT_TRUE(executor.Submit([&] { ++ran; }).ok());
    const Status full = executor.Submit([&] { ++ran; });
    EXPECT_EQ(full.code(), StatusCode::kUnavailable);
    EXPECT_EQ(executor.queued(), 2);
    release.set_value();
  }
  EXPECT_EQ(ran.load(), 3);  // what was accepted ran before the executor was gone
  EXPECT_NE(metrics.Serialize().find("onnxd_requests_shed_total{reason=\"queue_full\"} 1"),
            std::string::npos);
}

TEST(Executor, AbandonDropsWhatWaitsAndRefusesFromThenOn) {
  ServerMetrics metrics;
  Executor executor(1, 10, metrics);
  std::promise<void> started, release;
  std::atomic<int> ran{0};
  ASSERT_TRUE(executor
                  .Submit([&] {
                    started.set_value();
                    release.get_future().wait();
                    ++ran;
                  })
                  .ok());
  started.get_future().wait();
  ASSERT_TRUE(executor.Submit([&] { ++ran; }).ok());
  std::thread stopper([&] { executor.Abandon(); });
  while (executor.queued() > 0) std::this_thread::yield();
  release.set_value();
  stopper.join();
  EXPECT_EQ(ran.load(), 1);
  EXPECT_EQ(executor.Submit([] {}).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace onnxd
