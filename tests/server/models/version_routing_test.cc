#include "server/models/version_routing.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "runtime/base/str_cat.h"
#include "server/inference/route_point.h"

namespace onnxd {
namespace {

RolloutSettings Canary(int64_t stable, int64_t canary) {
  RolloutSettings rollout;
  rollout.labels = {{"stable", "3"}, {"canary", "4"}};
  rollout.split = {{"stable", stable}, {"canary", canary}};
  return rollout;
}

bool All(const std::string&) { return true; }

std::map<std::string, int> Spread(const RolloutSettings& rollout, int requests, bool keyed) {
  std::map<std::string, int> counts;
  for (int i = 0; i < requests; ++i) {
    const uint64_t point = RoutePoint(keyed ? StrCat("user-", i) : "");
    ++counts[ShareAt(point, "m", rollout, All)];
  }
  return counts;
}

TEST(VersionRouting, SharesAreWithinTwoPercentOfTenThousandRequests) {
  EXPECT_NEAR(Spread(Canary(90, 10), 10'000, true)["4"], 1'000, 200);
  EXPECT_NEAR(Spread(Canary(1, 1), 10'000, true)["4"], 5'000, 200);
}

TEST(VersionRouting, RequestsWithoutAKeyAreSpreadEvenlyFromTheFirstOn) {
  EXPECT_NEAR(Spread(Canary(90, 10), 10'000, false)["4"], 1'000, 5);
  EXPECT_NEAR(Spread(Canary(90, 10), 100, false)["4"], 10, 3);
}

TEST(VersionRouting, AKeyKeepsItsVersionAndALargerShareKeepsItsKeys) {
  for (int i = 0; i < 1'000; ++i) {
    const uint64_t point = RoutePoint(StrCat("user-", i));
    const std::string before = ShareAt(point, "m", Canary(90, 10), All);
    EXPECT_EQ(ShareAt(RoutePoint(StrCat("user-", i)), "m", Canary(90, 10), All), before);
    if (before == "4") {
      EXPECT_EQ(ShareAt(point, "m", Canary(50, 50), All), "4");
    }
  }
}

TEST(VersionRouting, AnotherModelHasOtherKeysInItsShares) {
  std::set<bool> agree;
  for (int i = 0; i < 1'000; ++i) {
    const uint64_t point = RoutePoint(StrCat("user-", i));
    agree.insert(ShareAt(point, "m", Canary(1, 1), All) == ShareAt(point, "n", Canary(1, 1), All));
  }
  EXPECT_EQ(agree.size(), 2u);
}

TEST(VersionRouting, AVersionThatDoesNotServeLeavesItsRequestsToTheFirstThatDoes) {
  const auto old_one = [](const std::string& version) { return version == "3"; };
  const auto none = [](const std::string&) { return false; };
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(ShareAt(RoutePoint(""), "m", Canary(10, 90), old_one), "3");
    EXPECT_EQ(ShareAt(RoutePoint(""), "m", Canary(10, 90), none), "");
  }
}

TEST(VersionRouting, AShareOfZeroGetsNothing) {
  EXPECT_EQ(Spread(Canary(1, 0), 1'000, true)["3"], 1'000);
  EXPECT_EQ(Spread(Canary(0, 1), 1'000, true)["4"], 1'000);
  // Not even what others leave.
  const auto canary = [](const std::string& version) { return version == "4"; };
  EXPECT_EQ(ShareAt(1, "m", Canary(1, 0), canary), "");
}

TEST(VersionRouting, WithoutAPointItIsTheFirstShare) {
  EXPECT_EQ(ShareAt(std::nullopt, "m", Canary(1, 99), All), "3");
}

TEST(VersionRouting, ALabelMovesOnceItsNewVersionServes) {
  RolloutSettings now, wanted;
  now.labels = {{"stable", "3"}, {"gone", "1"}};
  wanted.labels = {{"stable", "4"}, {"gone", "2"}, {"fresh", "9"}};
  const auto old_ones = [](const std::string& version) { return version == "3"; };
  const RolloutSettings moved = MoveLabels(now, wanted, old_ones);
  EXPECT_EQ(moved.labels.at("stable"), "3");
  EXPECT_EQ(moved.labels.at("gone"), "2");  // neither serves
  EXPECT_EQ(moved.labels.at("fresh"), "9");
  EXPECT_EQ(MoveLabels(now, wanted, All).labels.at("stable"), "4");
}

}  // namespace
}  // namespace onnxd
