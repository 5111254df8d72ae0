#include "server/service/rate_limiter.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using std::chrono::milliseconds;

class RateLimiterTest : public testing::Test {
 protected:
  bool Enter(const RateLimitSettings& settings, milliseconds after, const std::string& key = "",
             const std::string& model = "m") {
    const Status status = limiter_.Enter(model, settings, key, begin_ + after);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted);
    return status.ok();
  }
  int Admitted(const RateLimitSettings& settings, milliseconds after, const std::string& key = "") {
    int admitted = 0;
    while (Enter(settings, after, key)) ++admitted;
    return admitted;
  }

  RateLimiter limiter_;
  const RateLimiter::Time begin_ = RateLimiter::Time() + std::chrono::hours(1);
};

TEST_F(RateLimiterTest, TakesABurstThenTheRate) {
  RateLimitSettings settings{10, 3, 0, 0};
  EXPECT_EQ(Admitted(settings, milliseconds(0)), 3);
  EXPECT_FALSE(Enter(settings, milliseconds(99)));
  EXPECT_TRUE(Enter(settings, milliseconds(100)));
  EXPECT_FALSE(Enter(settings, milliseconds(101)));
  EXPECT_EQ(Admitted(settings, milliseconds(10'000)), 3);
}

TEST_F(RateLimiterTest, WithoutABurstOneSecondsMayComeAtOnce) {
  EXPECT_EQ(Admitted({10, 0, 0, 0}, milliseconds(0)), 10);
}

TEST_F(RateLimiterTest, KeysHaveTheirOwnAndWhoHasNoneOnlyTheModels) {
  const RateLimitSettings settings{0, 0, 1, 2};
  EXPECT_EQ(Admitted(settings, milliseconds(0), "a"), 2);
  EXPECT_EQ(Admitted(settings, milliseconds(0), "b"), 2);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Enter(settings, milliseconds(0)));
}

TEST_F(RateLimiterTest, WhatOneLimitRefusesCountsForNeither) {
  const RateLimitSettings settings{4, 4, 1, 1};
  EXPECT_EQ(Admitted(settings, milliseconds(0), "a"), 1);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Enter(settings, milliseconds(0), "a"));
  EXPECT_TRUE(Enter(settings, milliseconds(0), "b"));
  EXPECT_TRUE(Enter(settings, milliseconds(0), "c"));
  EXPECT_TRUE(Enter(settings, milliseconds(0), "d"));
  EXPECT_FALSE(Enter(settings, milliseconds(0), "e"));
}

TEST_F(RateLimiterTest, ModelsAreApart) {
  const RateLimitSettings settings{1, 1, 0, 0};
  EXPECT_TRUE(Enter(settings, milliseconds(0)));
  EXPECT_TRUE(Enter(settings, milliseconds(0), "", "n"));
}

TEST_F(RateLimiterTest, LargestNumbersDoNotOverflow) {
  const RateLimitSettings settings{1'000'000'000, 1'000'000'000, 1, 1'000'000'000};
  EXPECT_TRUE(Enter(settings, milliseconds(0), "a"));
}

}  // namespace
}  // namespace onnxd
