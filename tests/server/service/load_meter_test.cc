#include "server/service/load_meter.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using std::chrono::milliseconds;

constexpr LoadMeter::Time kStart{};

TEST(LoadMeter, TellsRatesSinceItsStartToWhoeverAsksFirst) {
  LoadMeter meter(
      2, [] { return LoadMeter::Reading{4, 100, 10, 0.5, 0.25, 3}; }, kStart);
  const LoadReport report = meter.Report(kStart + milliseconds(10000));
  EXPECT_DOUBLE_EQ(report.cpu_utilization, 4.0 / 10 / 2);
  EXPECT_DOUBLE_EQ(report.rps_fractional, 10);
  EXPECT_DOUBLE_EQ(report.eps, 1);
  EXPECT_DOUBLE_EQ(report.mem_utilization, 0.5);
  EXPECT_DOUBLE_EQ(report.application_utilization, 0.25);
  EXPECT_DOUBLE_EQ(report.queued_requests, 3);
}

TEST(LoadMeter, ReadsOnceInATenthOfASecond) {
  int reads = 0;
  LoadMeter meter(
      1,
      [&reads] {
        ++reads;
        return LoadMeter::Reading{};
      },
      kStart);
  for (int i = 0; i < 300; ++i) (void)meter.Report(kStart + milliseconds(i));
  EXPECT_EQ(reads, 3);
}

TEST(LoadMeter, FollowsTheLastSeconds) {
  LoadMeter::Reading now;
  LoadMeter meter(
      1, [&now] { return now; }, kStart);
  auto time = kStart;
  LoadReport report;
  const auto serve = [&](int seconds, int64_t a_second) {
    for (int tenth = 0; tenth < 10 * seconds; ++tenth) {
      time += milliseconds(100);
      now.answered += a_second / 10;
      report = meter.Report(time);
    }
  };
  serve(60, 1000);
  EXPECT_NEAR(report.rps_fractional, 1000, 1);
  serve(3, 50);
  EXPECT_NEAR(report.rps_fractional, 50, 1);
}

TEST(LoadMeter, ForgetsAPauseWithinASecondOrTwo) {
  LoadMeter::Reading now;
  LoadMeter meter(
      1, [&now] { return now; }, kStart);
  (void)meter.Report(kStart + milliseconds(500));
  auto time = kStart + std::chrono::hours(1);
  LoadReport report;
  for (int tenth = 0; tenth < 22; ++tenth) {
    time += milliseconds(100);
    now.answered += 10;
    report = meter.Report(time);
  }
  EXPECT_NEAR(report.rps_fractional, 100, 1);
}

}  // namespace
}  // namespace onnxd
