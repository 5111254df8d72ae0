#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <thread>

#include "runtime/base/ceil_divide.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/size_class.h"
#include "runtime/base/status.h"
#include "runtime/base/str_cat.h"
#include "runtime/base/thread_pool.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument(StrCat(x, " is odd"));
  return x / 2;
}

Result<int> Quarter(int x) {
  ONNXD_ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

TEST(Status, CarriesGrpcNumbersAndContext) {
  const Status status = Unavailable("the queue is full").WithContext("model 'a'");
  EXPECT_EQ(static_cast<int>(status.code()), 14);
  EXPECT_EQ(status.ToString(), "UNAVAILABLE: model 'a': the queue is full");
  EXPECT_TRUE(Status::Ok().WithContext("x").ok());
}

TEST(Result, StopsAtTheFirstFailure) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
}

TEST(CeilDivide, RoundsUpWithoutASum) {
  EXPECT_EQ(CeilDivide(0, 4), 0);
  EXPECT_EQ(CeilDivide(8, 4), 2);
  EXPECT_EQ(CeilDivide(9, 4), 3);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(CeilDivide(kMost, 2), kMost / 2 + 1);
}

TEST(SizeClass, IsLessThanAQuarterAbove) {
  for (const int64_t size : {-1, 0, 1, 2, 3, 7, 8, 10, 16, 20, 96, 128, 1024}) {
    EXPECT_EQ(SizeClass(size), size);
  }
  EXPECT_EQ(SizeClass(9), 10);
  EXPECT_EQ(SizeClass(33), 40);
  EXPECT_EQ(SizeClass(1025), 1280);
  EXPECT_EQ(SizeClass((int64_t{1} << 62) - 1), int64_t{1} << 62);
  EXPECT_EQ(SizeClass(INT64_MAX), INT64_MAX);
  int64_t last = 0;
  for (int64_t size = 1; size < 5000; ++size) {
    const int64_t rounded = SizeClass(size);
    EXPECT_GE(rounded, std::max(size, last));
    EXPECT_LT(rounded * 4, size * 5);
    last = rounded;
  }
}

TEST(CheckedMath, ReportsOverflow) {
  EXPECT_FALSE(CheckedMultiply(int64_t{1} << 40, int64_t{1} << 40).has_value());
  EXPECT_EQ(SaturatingMultiply(int64_t{1} << 40, -(int64_t{1} << 40)),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(CheckedAdd(2, 3), 5);
}

TEST(Log, EscapesControlCharacters) { EXPECT_EQ(EscapeControl("a\nb\tc\x01"), "a\\nb\\tc\\x01"); }

TEST(ThreadPool, CoversEveryIndexOnce) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> seen(1000);
  pool.ParallelFor(1000, 7, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
}

TEST(ThreadPool, ServesSeveralCallersAtOnce) {
  ThreadPool pool(2);
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        pool.ParallelFor(64, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 4 * 200 * 64);
}

class ExternalFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / StrCat("onnxd_file_test_", getpid());
    fs::create_directories(folder_ / "model" / "sub");
    ASSERT_TRUE(WriteFile((folder_ / "secret").string(), "secret").ok());
    ASSERT_TRUE(WriteFile((folder_ / "model" / "weights").string(), "weights").ok());
    ASSERT_TRUE(WriteFile((folder_ / "model" / "sub" / "w").string(), "w").ok());
  }
  void TearDown() override { fs::remove_all(folder_); }
  Status Open(const std::string& path) {
    return OpenFileBeneath((folder_ / "model").string(), path).status();
  }
  fs::path folder_;
};

TEST_F(ExternalFile, OpensFilesBeneathTheFolder) {
  EXPECT_EQ(Open("weights").ToString(), "OK");
  EXPECT_EQ(Open("sub/w").ToString(), "OK");
}

TEST_F(ExternalFile, RefusesEscapes) {
  fs::create_symlink(folder_ / "secret", folder_ / "model" / "link");
  fs::create_directory_symlink(folder_, folder_ / "model" / "up");
  fs::create_hard_link(folder_ / "secret", folder_ / "model" / "hard");
  ASSERT_EQ(mkfifo((folder_ / "model" / "fifo").c_str(), 0600), 0);
  for (const char* path : {"../secret", "sub/../../secret", "/etc/passwd", "link", "up/secret",
                           "hard", "fifo", "sub", "", ".", "missing"}) {
    EXPECT_FALSE(Open(path).ok()) << path;
  }
  EXPECT_FALSE(Open(std::string("a\0b", 3)).ok());
}

TEST(File, ReportsAFileThatBecameShorter) {
  const std::string path = (fs::temp_directory_path() / StrCat("onnxd_short_", getpid())).string();
  ASSERT_TRUE(WriteFile(path, std::string(100, 'x')).ok());
  const auto source = OpenFile(path);
  ASSERT_TRUE(source.ok());
  fs::resize_file(path, 10);
  char buffer[100];
  EXPECT_EQ((*source)->ReadAt(0, buffer, 100).code(), StatusCode::kDataLoss);
  fs::remove(path);
}

}  // namespace
}  // namespace onnxd
