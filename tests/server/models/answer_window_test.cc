#include "server/models/answer_window.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

TEST(LeastRate, IsWhatChanceLeavesCredible) {
  EXPECT_EQ(LeastRate({0, 0}), 0);
  EXPECT_NEAR(LeastRate({0, 1000}), 0, 1e-12);
  // Wilson's interval with z = 3.29, by hand: n / (n + z^2).
  EXPECT_NEAR(LeastRate({20, 20}), 20 / (20 + 3.29 * 3.29), 1e-9);
  EXPECT_LT(LeastRate({1, 2}), 0.1);
  EXPECT_GT(LeastRate({1000, 2000}), 0.46);
}

TEST(LeastRate, GrowsWithEvidence) {
  for (int64_t n = 20; n < 2000; n *= 2) {
    EXPECT_LT(LeastRate({n / 2, n}), LeastRate({n, 2 * n}));
    EXPECT_LT(LeastRate({n / 2, n}), 0.5);
  }
}

TEST(AnswerWindow, CountsTheLastOfTwoStretches) {
  AnswerWindow window;
  EXPECT_EQ(window.recent().all, 0);
  for (int i = 0; i < 300; ++i) window.Add(true);
  EXPECT_EQ(window.recent().with, 200);
  EXPECT_EQ(window.recent().all, 200);
  EXPECT_EQ(window.all().with, 300);
  for (int i = 0; i < 150; ++i) window.Add(false);
  EXPECT_EQ(window.recent().with, 50);
  EXPECT_EQ(window.all().all, 450);
  for (int i = 0; i < 1800; ++i) window.Add(false);
  EXPECT_EQ(window.recent().with, 0);
  EXPECT_EQ(window.all().with, 50);  // of 2,250, the first 250 are forgotten
  EXPECT_EQ(window.all().all, 2000);
}

}  // namespace
}  // namespace onnxd
