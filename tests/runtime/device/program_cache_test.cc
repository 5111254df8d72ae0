// Compiled kernels are found by what they were made of, and not when they are damaged.
#include "runtime/device/program_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

class ProgramCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / StrCat("onnxd_programs_", getpid());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  ProgramCache Open(uint64_t limit_bytes = 1 << 20) {
    return ProgramCache(*PrivateFolder::Open(root_.string(), limit_bytes));
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(root_)) {
      if (file.path().extension() == ".kernel") files.push_back(file.path());
    }
    return files;
  }

  fs::path root_;
};

TEST_F(ProgramCacheTest, FindsWhatAnotherProcessStored) {
  Open().Store("compiler 1", "text", "machine code");
  ProgramCache later = Open();
  EXPECT_EQ(later.Find("compiler 1", "text"), "machine code");
  EXPECT_EQ(later.Find("compiler 2", "text"), std::nullopt);
  EXPECT_EQ(later.Find("compiler 1", "another text"), std::nullopt);
  EXPECT_EQ(later.statistics().found, 1);
  EXPECT_EQ(later.statistics().compiled, 0);
}

TEST_F(ProgramCacheTest, KeepsWhatWasFastestOnADevice) {
  Open().StoreFastest("device 1", "a product", "tiles");
  ProgramCache later = Open();
  EXPECT_EQ(later.FindFastest("device 1", "a product"), "tiles");
  EXPECT_EQ(later.FindFastest("device 2", "a product"), std::nullopt);
  EXPECT_EQ(later.Find("device 1", "a product"), std::nullopt);
  EXPECT_EQ(later.statistics().compiled, 0);
}

TEST_F(ProgramCacheTest, RemovesWhatIsDamaged) {
  ProgramCache cache = Open();
  for (const auto& damage : {"short", "a file that is long enough, but whose hash is another"}) {
    cache.Store("compiler", "text", "machine code");
    ASSERT_EQ(Files().size(), 1u);
    std::ofstream(Files()[0]) << damage;
    EXPECT_EQ(cache.Find("compiler", "text"), std::nullopt);
    EXPECT_TRUE(Files().empty());
  }
}

TEST_F(ProgramCacheTest, KeepsWithinItsLimit) {
  ProgramCache cache = Open(3000);
  for (int i = 0; i < 10; ++i) {
    cache.Store("compiler", StrCat("text ", i), std::string(1000, 'x'));
  }
  EXPECT_LE(Files().size(), 2u);
  EXPECT_NE(cache.Find("compiler", "text 9"), std::nullopt);
}

}  // namespace
}  // namespace onnxd
