#include "server/models/quarantine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

class QuarantineTest : public testing::Test {
 protected:
  ~QuarantineTest() override { fs::remove_all(folder_); }

  WantedVersion Version(const std::string& number, const std::string& contents) {
    WantedVersion version;
    version.model = "m";
    version.version = number;
    version.path = folder_ / "m" / number / "model.onnx";
    fs::create_directories(fs::path(version.path).parent_path());
    std::ofstream(version.path) << contents;
    return version;
  }
  static QuarantineEntry Entry(const WantedVersion& version) {
    return {version.model, version.version, HashContents(version)->Hex(), "it failed, often"};
  }

  const fs::path folder_ = fs::temp_directory_path() / StrCat("onnxd_quarantine_", getpid());
};

TEST_F(QuarantineTest, HoldsContentsWhateverTheirNumberUntilTheyAreReleased) {
  const WantedVersion bad = Version("4", "bad"), good = Version("3", "good"),
                      copy = Version("5", "bad");
  Quarantine quarantine;
  EXPECT_FALSE(quarantine.Holds(bad));
  quarantine.Add(Entry(bad));
  quarantine.Add(Entry(bad));
  EXPECT_EQ(quarantine.entries().size(), 1u);
  EXPECT_EQ(quarantine.Holds(bad), "it failed, often");
  EXPECT_FALSE(quarantine.Holds(good));
  EXPECT_EQ(quarantine.Holds(copy), "its files are those of version 4: it failed, often");
  EXPECT_FALSE(quarantine.Holds(Version("4", "mended")));
  EXPECT_TRUE(quarantine.Holds(Version("4", "bad")));
  EXPECT_FALSE(quarantine.Release("m", "3"));
  EXPECT_FALSE(quarantine.Release("other", "4"));
  EXPECT_TRUE(quarantine.Release("m", "4"));
  EXPECT_FALSE(quarantine.Holds(bad));
}

TEST_F(QuarantineTest, ReadsWhatWasWritten) {
  const std::string state = (folder_ / "state").string();
  EXPECT_TRUE(ReadQuarantine("")->entries().empty());
  EXPECT_TRUE(ReadQuarantine(state)->entries().empty());
  Quarantine quarantine;
  quarantine.Add(Entry(Version("4", "bad")));
  quarantine.Add({"other", "12", "abc", ""});
  ASSERT_TRUE(WriteQuarantine(state, quarantine).ok());
  EXPECT_EQ(ReadQuarantine(state)->entries(), quarantine.entries());
}

TEST_F(QuarantineTest, SeesAnyDamage) {
  const std::string state = (folder_ / "state").string(), path = state + "/quarantine";
  Quarantine quarantine;
  quarantine.Add(Entry(Version("4", "bad")));
  ASSERT_TRUE(WriteQuarantine(state, quarantine).ok());
  const std::string whole = *ReadFile(path, 1 << 20);
  for (size_t length = 0; length < whole.size(); ++length) {
    std::ofstream(path) << whole.substr(0, length);
    EXPECT_EQ(ReadQuarantine(state).status().code(), StatusCode::kDataLoss) << length;
  }
}

}  // namespace
}  // namespace onnxd
