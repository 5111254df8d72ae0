#include "server/models/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr StateFile kFile{"pets", "pets", "animals"};
constexpr StateFile kNewer{"pets", "pets", "animals", 12};

class StateFileTest : public testing::Test {
 protected:
  ~StateFileTest() override { fs::remove_all(folder_); }
  const std::string folder_ =
      (fs::temp_directory_path() / StrCat("onnxd_state_file_", getpid())).string();
};

TEST_F(StateFileTest, ReadsWhatWasWritten) {
  EXPECT_TRUE(ReadStateFile("", kFile)->empty());
  EXPECT_TRUE(ReadStateFile(folder_, kFile)->empty());
  const std::vector<std::string> lines = {"a cat", "", "a dog "};
  ASSERT_TRUE(WriteStateFile(folder_, kFile, lines).ok());
  EXPECT_EQ(*ReadStateFile(folder_, kFile), lines);
  EXPECT_EQ(*ReadFile(folder_ + "/pets", 1000), "onnxd pets 1\na cat\n\na dog \n3 animals\n");
}

TEST_F(StateFileTest, NamesWhatANewerOneWrote) {
  ASSERT_TRUE(WriteStateFile(folder_, kNewer, {"a cat"}).ok());
  const Status read = ReadStateFile(folder_, kFile).status();
  EXPECT_EQ(read.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(read.message(), testing::HasSubstr(folder_ + "/pets is of format 12, and this onnxd "
                                                           "knows 1"));
  ASSERT_TRUE(WriteFile(folder_ + "/pets", "onnxd pets 2\nnothing that is known").ok());
  EXPECT_EQ(ReadStateFile(folder_, kFile).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(StateFileTest, SeesAnyDamage) {
  ASSERT_TRUE(WriteStateFile(folder_, kFile, {"a cat", "a dog"}).ok());
  const std::string path = folder_ + "/pets", whole = *ReadFile(path, 1000);
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_TRUE(WriteFile(path, whole.substr(0, length)).ok());
    EXPECT_EQ(ReadStateFile(folder_, kFile).status().code(), StatusCode::kDataLoss) << length;
  }
  for (const char* text : {"onnxd cars 2\n0 animals\n", "onnxd pets 99999999999\n0 animals\n",
                           "onnxd pets 2x\n0 animals\n"}) {
    ASSERT_TRUE(WriteFile(path, text).ok());
    EXPECT_EQ(ReadStateFile(folder_, kFile).status().code(), StatusCode::kDataLoss) << text;
  }
}

}  // namespace
}  // namespace onnxd
