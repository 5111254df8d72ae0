#include "server/models/eviction.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using std::chrono::seconds;

ResidentVersion Idle(const std::string& model, int64_t bytes, seconds unused) {
  ResidentVersion version;
  version.key = {model, "1"};
  version.bytes = bytes;
  version.resident = seconds(1000);
  version.unused = unused;
  return version;
}

// "a b" in order, or "no".
std::string Chosen(std::vector<ResidentVersion> resident, int64_t needed) {
  const auto chosen = ChooseEvictions(std::move(resident), needed, seconds(60));
  if (!chosen) return "no";
  std::string text;
  for (const VersionKey& key : *chosen) text += (text.empty() ? "" : " ") + key.first;
  return text;
}

TEST(Eviction, TakesTheLongestUnusedUntilThereIsEnough) {
  const std::vector<ResidentVersion> resident = {
      Idle("a", 10, seconds(5)), Idle("b", 10, seconds(50)), Idle("c", 10, seconds(20))};
  EXPECT_EQ(Chosen(resident, 10), "b");
  EXPECT_EQ(Chosen(resident, 11), "b c");
  EXPECT_EQ(Chosen(resident, 0), "");
}

TEST(Eviction, TakesWhatDoesNotServeFirst) {
  ResidentVersion kept = Idle("k", 10, seconds(1));
  kept.kept = true;
  EXPECT_EQ(Chosen({Idle("a", 10, seconds(50)), kept}, 15), "k a");
}

TEST(Eviction, LeavesWhatIsPinnedBusyOrNew) {
  ResidentVersion pinned = Idle("p", 10, seconds(9)), busy = pinned, fresh = pinned;
  pinned.pinned = true;
  busy.busy = true;
  fresh.resident = seconds(59);
  EXPECT_EQ(Chosen({pinned, busy, fresh}, 1), "no");
  fresh.resident = seconds(60);
  EXPECT_EQ(Chosen({pinned, busy, fresh}, 1), "p");
}

TEST(Eviction, AKeptVersionGoesHoweverNewAndPinnedItIs) {
  ResidentVersion kept = Idle("k", 10, seconds(0));
  kept.kept = kept.pinned = true;
  kept.resident = seconds(0);
  EXPECT_EQ(Chosen({kept}, 1), "k");
}

TEST(Eviction, DoesNothingWhereAllWouldNotDo) {
  EXPECT_EQ(Chosen({Idle("a", 10, seconds(5)), Idle("b", 10, seconds(5))}, 21), "no");
}

}  // namespace
}  // namespace onnxd
