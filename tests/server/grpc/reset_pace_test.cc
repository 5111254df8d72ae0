#include "server/grpc/reset_pace.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using namespace std::chrono_literals;

using Time = ResetPace::Clock::time_point;
constexpr size_t kAll = 65536, kFew = 1024;

// One read, with which so many calls end, some of them reset after `waited` of their timeout.
std::chrono::milliseconds Read(ResetPace& pace, int ends, int resets,
                               ResetPace::Clock::duration waited = 0ms,
                               ResetPace::Clock::duration timeout = 0ms, Time now = Time()) {
  const Time opened{};
  for (int i = 0; i < ends - resets; ++i) pace.CallAnswered();
  for (int i = 0; i < resets; ++i) pace.CallReset(opened, timeout, opened + waited);
  return pace.NextPause(now);
}

std::chrono::milliseconds ReadAt(Time now, ResetPace& pace, int ends, int resets) {
  return Read(pace, ends, resets, 0ms, 0ms, now);
}

TEST(ResetPace, NothingIsKnownBeforeTheFirstRead) {
  ResetPace pace;
  EXPECT_EQ(pace.ReadBytes(kAll), kFew);
  EXPECT_EQ(Read(pace, 1, 0), 0ms);
  EXPECT_EQ(pace.ReadBytes(kAll), kAll);
}

TEST(ResetPace, FewResetsOfReadAfterReadCountTogether) {
  ResetPace pace;
  EXPECT_EQ(Read(pace, 20, 20), 0ms);
  EXPECT_EQ(pace.ReadBytes(kAll), kFew);  // until more is known
  EXPECT_EQ(Read(pace, 20, 20), 0ms);
  EXPECT_EQ(Read(pace, 20, 20), 10ms);
}

TEST(ResetPace, FewResetsNowAndThenAreNoAttack) {
  ResetPace pace;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(ReadAt(Time() + i * 200ms, pace, 20, 20), 0ms);
    EXPECT_EQ(ReadAt(Time() + i * 200ms + 100ms, pace, 20, 20), 0ms);
    EXPECT_EQ(pace.ReadBytes(kAll), kAll);
  }
}

TEST(ResetPace, WhoOnlyResetsIsReadEverMoreSlowly) {
  ResetPace pace;
  EXPECT_EQ(Read(pace, 400, 400), 10ms);
  EXPECT_EQ(pace.ReadBytes(kAll), kFew);
  EXPECT_EQ(Read(pace, 25, 25), 20ms);  // few fit a short read
  EXPECT_EQ(Read(pace, 0, 0), 20ms);
  for (int i = 0; i < 10; ++i) Read(pace, 25, 25);
  EXPECT_EQ(Read(pace, 25, 25), 200ms);
  EXPECT_FALSE(pace.IsHopeless());
  for (int i = 0; i < 25; ++i) Read(pace, 400, 400);
  EXPECT_TRUE(pace.IsHopeless());
}

TEST(ResetPace, WhoBehavesAgainIsReadAsOthersAre) {
  ResetPace pace;
  Read(pace, 400, 400);
  EXPECT_EQ(Read(pace, 10, 5), 0ms);
  EXPECT_EQ(pace.ReadBytes(kAll), kAll);
}

TEST(ResetPace, SomeResetsAreNoAttack) {
  ResetPace pace;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Read(pace, 20, 20), 0ms);  // too few at once to matter
    EXPECT_EQ(Read(pace, 400, 300), 0ms);
  }
  EXPECT_FALSE(pace.IsHopeless());
}

TEST(ResetPace, DeadlinesThatExpireAreNoAttack) {
  ResetPace pace;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Read(pace, 512, 512, 3900us, 4ms), 0ms);
  EXPECT_FALSE(pace.IsHopeless());
  // But resetting long before it does.
  EXPECT_EQ(Read(pace, 512, 512, 1ms, 4ms), 10ms);
}

}  // namespace
}  // namespace onnxd
