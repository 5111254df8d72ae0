#include "server/models/rollout_overlay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

RolloutSettings File() {
  RolloutSettings file;
  file.labels = {{"stable", "3"}, {"canary", "4"}};
  file.split = {{"stable", 90}, {"canary", 10}};
  return file;
}

TEST(RolloutOverlay, LiesOverTheFileUntilItIsTakenBack) {
  RolloutChange change;
  change.labels = {{"canary", "5"}, {"new", "6"}};
  change.split = {{"canary", 1}};
  RolloutOverlay overlay = Changed({}, change);
  RolloutSettings now = Over(File(), overlay);
  EXPECT_EQ(now.labels, (std::map<std::string, std::string>{
                            {"stable", "3"}, {"canary", "5"}, {"new", "6"}}));
  EXPECT_EQ(now.split, *change.split);
  // What a change does not name stays.
  RolloutChange back;
  back.labels = {{"canary", ""}};
  overlay = Changed(overlay, back);
  EXPECT_EQ(Over(File(), overlay).labels.at("canary"), "4");
  EXPECT_EQ(Over(File(), overlay).labels.at("new"), "6");
  EXPECT_EQ(Over(File(), overlay).split, *change.split);
  back.labels = {{"new", ""}};
  back.split.emplace();
  EXPECT_EQ(Changed(overlay, back), RolloutOverlay());
}

class RolloutFile : public testing::Test {
 protected:
  ~RolloutFile() override { fs::remove_all(fs::path(folder_).parent_path()); }
  const std::string folder_ =
      (fs::temp_directory_path() / StrCat("onnxd_rollouts_", getpid()) / "state").string();
  const RolloutOverlays overlays_ = {{"a", {{{"canary", "4"}}, {{"3", 90}, {"canary", 10}}}},
                                     {"ü-2", {{}, {{"7", 1}}}}};
};

TEST_F(RolloutFile, ReadsWhatWasWritten) {
  EXPECT_TRUE(ReadRollouts("")->empty());
  EXPECT_TRUE(ReadRollouts(folder_)->empty());
  ASSERT_TRUE(WriteRollouts(folder_, overlays_).ok());
  EXPECT_EQ(*ReadRollouts(folder_), overlays_);
  ASSERT_TRUE(WriteRollouts(folder_, {}).ok());
  EXPECT_TRUE(ReadRollouts(folder_)->empty());
}

TEST_F(RolloutFile, SeesAnyDamage) {
  ASSERT_TRUE(WriteRollouts(folder_, overlays_).ok());
  const std::string path = folder_ + "/rollouts", whole = *ReadFile(path, 1 << 20);
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_TRUE(WriteFile(path, whole.substr(0, length)).ok());
    EXPECT_EQ(ReadRollouts(folder_).status().code(), StatusCode::kDataLoss) << length;
  }
  std::string odd = whole;
  odd.replace(odd.find("label a canary"), 14, "label a cana/y");
  ASSERT_TRUE(WriteFile(path, odd).ok());
  EXPECT_EQ(ReadRollouts(folder_).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace onnxd
