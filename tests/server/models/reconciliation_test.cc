#include "server/models/reconciliation.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using Known = std::map<VersionKey, KnownVersion>;

WantedVersion Wanted(const std::string& model, const std::string& version, uint64_t fingerprint) {
  WantedVersion wanted;
  wanted.model = model;
  wanted.version = version;
  wanted.fingerprint = fingerprint;
  return wanted;
}

// "load a1 a2; unload b1"
std::string Plan(const std::vector<WantedVersion>& wanted, const Known& known) {
  const Reconciliation plan = Reconcile(wanted, known);
  std::string text = "load";
  for (const WantedVersion& version : plan.load) text += " " + version.model + version.version;
  text += "; unload";
  for (const auto& [model, version] : plan.unload) text += " " + model + version;
  return text;
}

TEST(Reconciliation, LoadsWhatIsNewAndLeavesWhatServes) {
  EXPECT_EQ(Plan({Wanted("a", "1", 7), Wanted("b", "1", 8)}, {{{"a", "1"}, {7, true}}}),
            "load b1; unload");
}

TEST(Reconciliation, TheOldVersionStaysUntilTheNewOneServes) {
  const std::vector<WantedVersion> wanted = {Wanted("a", "2", 9)};
  EXPECT_EQ(Plan(wanted, {{{"a", "1"}, {7, true}}}), "load a2; unload");
  EXPECT_EQ(Plan(wanted, {{{"a", "1"}, {7, true}}, {{"a", "2"}, {9, true}}}), "load; unload a1");
}

TEST(Reconciliation, AFaultySettingsFileUnloadsNothing) {
  WantedVersion faulty = Wanted("a", "2", 9);
  faulty.fault = InvalidArgument("model.yaml");
  EXPECT_EQ(Plan({faulty}, {{{"a", "1"}, {7, true}}, {{"a", "2"}, {9, true}}}), "load; unload");
}

TEST(Reconciliation, AFailedVersionLeavesTheOldOneAndIsTriedAgainOnceItsFilesChange) {
  const Known known = {{{"a", "1"}, {7, true}}, {{"a", "2"}, {9, false}}};
  EXPECT_EQ(Plan({Wanted("a", "2", 9)}, known), "load; unload");
  EXPECT_EQ(Plan({Wanted("a", "2", 10)}, known), "load a2; unload");
}

TEST(Reconciliation, ChangedFilesOfAServingVersionAreLoadedInItsPlace) {
  EXPECT_EQ(Plan({Wanted("a", "1", 8)}, {{{"a", "1"}, {7, true}}}), "load a1; unload");
}

TEST(Reconciliation, AModelThatIsGoneIsUnloaded) {
  EXPECT_EQ(Plan({Wanted("b", "1", 8)}, {{{"a", "1"}, {7, true}}, {{"b", "1"}, {8, true}}}),
            "load; unload a1");
}

TEST(Reconciliation, ARemovedVersionGivesWayToAnOlderOne) {
  const Known known = {{{"a", "2"}, {9, true}}};
  EXPECT_EQ(Plan({Wanted("a", "1", 7)}, known), "load a1; unload");
}

}  // namespace
}  // namespace onnxd
