#include "server/models/shadow_target.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

int CopiesOf(ShadowTarget& target, const std::string& answering, int requests) {
  int copies = 0;
  for (int i = 0; i < requests; ++i) copies += target.Take(answering).has_value();
  return copies;
}

TEST(ShadowTarget, TakesItsShareEvenly) {
  ShadowTarget target;
  EXPECT_EQ(CopiesOf(target, "3", 100), 0);
  target.Follow({"4", 100, 0.5});
  EXPECT_EQ(CopiesOf(target, "3", 100), 100);
  const auto copy = target.Take("3");
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->version, "4");
  EXPECT_EQ(copy->tolerance, 0.5);
  target.Follow({"4", 30, 0});
  EXPECT_EQ(CopiesOf(target, "3", 10), 3);
  EXPECT_EQ(CopiesOf(target, "3", 990), 297);
}

TEST(ShadowTarget, WhatTheShadowAnswersItselfIsNotCopied) {
  ShadowTarget target;
  target.Follow({"4", 100, 0});
  EXPECT_EQ(CopiesOf(target, "4", 10), 0);
}

TEST(ShadowTarget, NoVersionOrNoShareTakesNothing) {
  ShadowTarget target;
  target.Follow({"", 100, 0});
  EXPECT_EQ(CopiesOf(target, "3", 10), 0);
  target.Follow({"4", 0, 0});
  EXPECT_EQ(CopiesOf(target, "3", 10), 0);
}

}  // namespace
}  // namespace onnxd
