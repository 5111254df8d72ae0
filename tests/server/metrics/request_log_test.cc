#include "server/metrics/request_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

namespace onnxd {
namespace {

using namespace std::chrono_literals;

RequestRecord Record(std::chrono::nanoseconds whole, StatusCode code = StatusCode::kOk,
                     const std::string& id = "") {
  RequestRecord record;
  record.model = "m";
  record.id = id;
  record.whole = whole;
  record.code = code;
  if (code != StatusCode::kOk) record.error = "why";
  return record;
}

class RequestLogTest : public testing::Test {
 protected:
  // The lines that `notes` makes the log write.
  int Lines(const std::function<void()>& notes) {
    testing::internal::CaptureStderr();
    notes();
    const std::string text = testing::internal::GetCapturedStderr();
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
};

TEST_F(RequestLogTest, KeepsTheSlowestAndTheLastThatFailed) {
  RequestLog log({0, 3, 600s});
  for (int i = 1; i <= 10; ++i) log.Note(Record(i * 1ms, StatusCode::kOk, std::to_string(i)));
  log.Note(Record(5500us, StatusCode::kInvalidArgument, "bad"));
  for (int i = 1; i <= 4; ++i) log.Note(Record(1us, StatusCode::kUnavailable, std::to_string(i)));
  const auto slowest = log.Slowest();
  ASSERT_EQ(slowest.size(), 3u);
  EXPECT_EQ(slowest[0].id, "10");
  EXPECT_EQ(slowest[2].id, "8");
  const auto failed = log.Failed();
  ASSERT_EQ(failed.size(), 3u);
  EXPECT_EQ(failed[0].id, "4");
  EXPECT_EQ(failed[2].id, "2");
}

TEST_F(RequestLogTest, ForgetsWhatIsLongAgo) {
  RequestLog log({0, 3, 0s});
  log.Note(Record(1ms, StatusCode::kInternal));
  std::this_thread::sleep_for(2ms);
  EXPECT_TRUE(log.Slowest().empty());
  EXPECT_TRUE(log.Failed().empty());
}

TEST_F(RequestLogTest, WritesALineForFailuresAndForAboutTheSlowestInAHundred) {
  RequestLog log({1'000'000, 8, 600s});
  EXPECT_EQ(Lines([&] { log.Note(Record(1ms, StatusCode::kInternal)); }), 1);
  // Durations that repeat in turns, 1 to 1000.
  const auto many = [&](int count) {
    for (int i = 0; i < count; ++i) log.Note(Record((i * 7919 % 1000 + 1) * 1us));
  };
  Lines([&] { many(20'000); });
  const int slow = Lines([&] { many(20'000); });
  EXPECT_GE(slow, 100);
  EXPECT_LE(slow, 400);
  log.SetLines(RequestLog::Lines::kNone);
  EXPECT_EQ(Lines([&] { log.Note(Record(1s, StatusCode::kInternal)); }), 0);
  log.SetLines(RequestLog::Lines::kAll);
  EXPECT_EQ(Lines([&] { log.Note(Record(1us)); }), 1);
}

TEST_F(RequestLogTest, WritesNoMoreLinesASecondThanItMay) {
  RequestLog log({10, 8, 600s});
  const int lines = Lines([&] {
    for (int i = 0; i < 1000; ++i) log.Note(Record(1ms, StatusCode::kInternal));
  });
  EXPECT_GE(lines, 10);
  EXPECT_LE(lines, 22);  // where a second ends meanwhile
}

}  // namespace
}  // namespace onnxd
