#include "server/models/loaded_list.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

class LoadedList : public testing::Test {
 protected:
  ~LoadedList() override { fs::remove_all(folder_); }
  const std::string folder_ =
      (fs::temp_directory_path() / StrCat("onnxd_loaded_list_", getpid()) / "state").string();
};

TEST_F(LoadedList, ReadsWhatWasWritten) {
  EXPECT_TRUE(ReadLoadedList(folder_)->empty());
  const std::set<std::string> models = {"a", "b-2", "ü"};
  ASSERT_TRUE(WriteLoadedList(folder_, models).ok());
  EXPECT_EQ(*ReadLoadedList(folder_), models);
  ASSERT_TRUE(WriteLoadedList(folder_, {}).ok());
  EXPECT_TRUE(ReadLoadedList(folder_)->empty());
}

TEST_F(LoadedList, SeesAnyDamage) {
  ASSERT_TRUE(WriteLoadedList(folder_, {"a", "b"}).ok());
  const std::string path = folder_ + "/loaded_models", whole = *ReadFile(path, 1 << 20);
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_TRUE(WriteFile(path, whole.substr(0, length)).ok());
    EXPECT_EQ(ReadLoadedList(folder_).status().code(), StatusCode::kDataLoss) << length;
  }
  ASSERT_TRUE(WriteFile(path, whole + "x").ok());
  EXPECT_FALSE(ReadLoadedList(folder_).ok());
}

TEST_F(LoadedList, SaysWhereItCannotWrite) {
  fs::create_directories(fs::path(folder_).parent_path());
  ASSERT_TRUE(WriteFile(folder_, "a file is in the way").ok());
  EXPECT_EQ(WriteLoadedList(folder_, {"a"}).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace onnxd
