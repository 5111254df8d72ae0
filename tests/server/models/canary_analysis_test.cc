#include "server/models/canary_analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace onnxd {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;

// Version 3 is the baseline, version 4 what it is compared with.
class Canary : public testing::Test {
 protected:
  void Follow(const RollbackSettings& settings = {}, bool differs = false) {
    CanaryAnalysis::Plan plan{"3", {"4"}, {}, "", settings};
    if (differs) plan.differing = {"4"};
    analysis_.Follow(plan);
  }
  void Note(const std::string& version, int answers, AnswerKind kind,
            microseconds duration = microseconds(100)) {
    for (int i = 0; i < answers; ++i) analysis_.Note(version, kind, duration);
  }
  // How many of version 4's requests fail before it is found bad, of those that fail with this
  // chance; -1: it is not, of so many.
  int FailuresUntilBad(double rate, int requests) {
    std::mt19937 random(7);
    std::bernoulli_distribution fails(rate);
    int failures = 0;
    for (int i = 0; i < requests; ++i) {
      const bool failed = fails(random);
      failures += failed;
      Note("4", 1, failed ? AnswerKind::kFailed : AnswerKind::kAnswered);
      if (!bad_.empty()) return failures;
    }
    return -1;
  }

  std::vector<CanaryAnalysis::Verdict> bad_;
  CanaryAnalysis analysis_{[this](const auto& verdict) { bad_.push_back(verdict); }};
};

TEST_F(Canary, OneThatFailsIsFoundAfterTheLeastSample) {
  Follow();
  Note("3", 200, AnswerKind::kAnswered);
  Note("4", 19, AnswerKind::kFailed);
  EXPECT_TRUE(bad_.empty());
  Note("4", 1, AnswerKind::kFailed);
  ASSERT_EQ(bad_.size(), 1u);
  EXPECT_EQ(bad_[0].version, "4");
  EXPECT_EQ(bad_[0].cause, RollbackCause::kErrors);
  EXPECT_EQ(bad_[0].reason, "20 of its last 20 requests failed, of version 3's 0 of 200");
}

TEST_F(Canary, IsFoundOnce) {
  Follow();
  Note("4", 1000, AnswerKind::kFailed);
  EXPECT_EQ(bad_.size(), 1u);
  Follow();
  Note("4", 1000, AnswerKind::kFailed);
  EXPECT_EQ(bad_.size(), 1u);
  analysis_.Follow({});
  Follow();
  Note("4", 1000, AnswerKind::kFailed);
  EXPECT_EQ(bad_.size(), 2u);
}

TEST_F(Canary, OneThatFailsAtTimesIsFoundWithinAHundredFailures) {
  for (const double rate : {0.9, 0.5, 0.2, 0.12}) {
    bad_.clear();
    analysis_.Follow({});
    Follow();
    Note("3", 2000, AnswerKind::kAnswered);
    const int failures = FailuresUntilBad(rate, 2000);
    EXPECT_GT(failures, 0) << rate;
    EXPECT_LT(failures, 100) << rate;
  }
}

TEST_F(Canary, OneThatWasGoodForLongIsFoundAsSoon) {
  Follow();
  Note("4", 1'000'000, AnswerKind::kAnswered);
  Note("4", 100, AnswerKind::kFailed);
  EXPECT_EQ(bad_.size(), 1u);
}

TEST_F(Canary, OneThatIsAsGoodIsNeverFound) {
  Follow();
  Note("3", 2000, AnswerKind::kAnswered);
  EXPECT_EQ(FailuresUntilBad(0.04, 100'000), -1);
}

TEST_F(Canary, WhatFailsForBothIsNobodysFault) {
  Follow();
  Note("3", 10'000, AnswerKind::kAnswered);
  Note("4", 1'000, AnswerKind::kAnswered);
  for (int i = 0; i < 1'000; ++i) {
    Note("3", 9, AnswerKind::kFailed);
    Note("4", 1, AnswerKind::kFailed);
  }
  EXPECT_TRUE(bad_.empty());
}

TEST_F(Canary, TheBaselineIsNotJudged) {
  Follow();
  Note("3", 1000, AnswerKind::kFailed);
  Note("7", 1000, AnswerKind::kFailed);
  EXPECT_TRUE(bad_.empty());
}

TEST_F(Canary, RefusalsCountWhereInputsDiffer) {
  Follow();
  Note("4", 1000, AnswerKind::kRefused);
  EXPECT_TRUE(bad_.empty());
  Follow({}, true);
  Note("4", 100, AnswerKind::kRefused);
  EXPECT_EQ(bad_.size(), 1u);
}

TEST_F(Canary, WhatTheBaselineRefusesAsOftenIsTheClientsFault) {
  Follow({}, true);
  for (int i = 0; i < 1000; ++i) {
    for (const char* version : {"3", "4"}) {
      Note(version, 1, AnswerKind::kRefused);
      Note(version, 2, AnswerKind::kAnswered);
    }
  }
  EXPECT_TRUE(bad_.empty());
}

TEST_F(Canary, OtherFilesStartAnew) {
  Follow();
  Note("4", 19, AnswerKind::kFailed);
  analysis_.Forget("4");
  Note("4", 19, AnswerKind::kFailed);
  EXPECT_TRUE(bad_.empty());
}

TEST_F(Canary, OneThatIsSlowIsFoundWhereTheSettingsSaySo) {
  const auto answer = [this](int requests, microseconds canary) {
    for (int i = 0; i < requests; ++i) {
      Note("3", 9, AnswerKind::kAnswered, microseconds(100 + i % 20));
      Note("4", 1, AnswerKind::kAnswered, canary);
    }
  };
  Follow();
  answer(1000, microseconds(500));
  EXPECT_TRUE(bad_.empty());
  Follow({.latency_percent = 200});
  analysis_.Forget("4");
  answer(1000, microseconds(200));
  EXPECT_TRUE(bad_.empty());
  answer(100, microseconds(300));
  ASSERT_EQ(bad_.size(), 1u);
  EXPECT_EQ(bad_[0].cause, RollbackCause::kLatency);
  EXPECT_THAT(bad_[0].reason,
              HasSubstr("answers took over 200% of the 118 us that 95% of version 3's keep"));
}

TEST_F(Canary, AShadowThatAnswersOtherwiseIsFoundWhereTheSettingsSaySo) {
  const auto compare = [this](int copies, bool same) {
    for (int i = 0; i < copies; ++i) analysis_.NoteComparison("5", same);
  };
  analysis_.Follow({"", {}, {}, "5", {}});
  compare(1000, false);
  EXPECT_TRUE(bad_.empty());
  analysis_.Follow({"", {}, {}, "5", {.mismatch_percent = 10}});
  analysis_.Forget("5");
  compare(2000, true);
  compare(20, false);
  EXPECT_TRUE(bad_.empty());
  compare(60, false);
  ASSERT_EQ(bad_.size(), 1u);
  EXPECT_EQ(bad_[0].version, "5");
  EXPECT_EQ(bad_[0].cause, RollbackCause::kMismatch);
  EXPECT_THAT(bad_[0].reason, HasSubstr("of its last 200 answers to copies differ"));
}

TEST_F(Canary, SettingsOfZeroSwitchItOff) {
  Follow({.error_percent = 0});
  EXPECT_FALSE(analysis_.active());
  Follow();
  EXPECT_TRUE(analysis_.active());
  analysis_.Follow({"3", {}, {}, "", {}});
  EXPECT_FALSE(analysis_.active());
}

}  // namespace
}  // namespace onnxd
