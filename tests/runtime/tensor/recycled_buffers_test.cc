#include "runtime/tensor/recycled_buffers.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/memory_account.h"

namespace onnxd {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

class RecycledBuffersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!RecycledBuffers::IsUsed())
      GTEST_SKIP() << "AddressSanitizer watches each tensor by itself";
  }
};

TEST_F(RecycledBuffersTest, GivesTheSameBlockToTheNextOfAboutItsSize) {
  const auto buffers = RecycledBuffers::Make();
  Buffer first = buffers->Take(kMegabyte - 100);
  const std::byte* const at = first.get();
  EXPECT_EQ(buffers->idle_bytes(), 0u);
  first.reset();
  EXPECT_EQ(buffers->idle_bytes(), kMegabyte);
  const Buffer second = buffers->Take(kMegabyte - 40000);
  EXPECT_EQ(second.get(), at);
  EXPECT_NE(buffers->Take(kMegabyte).get(), at);
}

TEST_F(RecycledBuffersTest, TensorsGoBackToIt) {
  const auto buffers = RecycledBuffers::Make();
  auto tensor = buffers->MakeTensor(DataType::kFloat, Shape{512, 512});
  ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
  const void* const at = tensor->raw();
  *tensor = Tensor();
  EXPECT_EQ(buffers->idle_bytes(), kMegabyte);
  EXPECT_EQ(buffers->MakeTensor(DataType::kInt64, Shape{131072})->raw(), at);
  EXPECT_EQ(buffers->MakeTensor(DataType::kString, Shape{2})->data<std::string>()[1], "");
  EXPECT_EQ(buffers->MakeTensor(DataType::kFloat, Shape{-1}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(RecycledBuffersTest, KeepsNoMoreThanItMay) {
  const auto buffers = RecycledBuffers::Make(2 * kMegabyte);
  std::vector<Buffer> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(buffers->Take(kMegabyte));
  taken.clear();
  EXPECT_EQ(buffers->idle_bytes(), 2 * kMegabyte);
  buffers->Take(3 * kMegabyte).reset();
  EXPECT_EQ(buffers->idle_bytes(), 2 * kMegabyte);
  buffers->LimitTo(kMegabyte);
  EXPECT_EQ(buffers->idle_bytes(), kMegabyte);
  buffers->LimitTo(3 * kMegabyte);
  buffers->Take(3 * kMegabyte).reset();
  EXPECT_EQ(buffers->idle_bytes(), 3 * kMegabyte);
  buffers->DropIdle();
  EXPECT_EQ(buffers->idle_bytes(), 0u);
}

// Shapes that grow from run to run leave blocks behind that nothing takes any more.
TEST_F(RecycledBuffersTest, KeepsThoseThatWereUsedLast) {
  const auto buffers = RecycledBuffers::Make(3 * kMegabyte);
  Buffer oldest = buffers->Take(kMegabyte / 2), large = buffers->Take(2 * kMegabyte),
         latest = buffers->Take(kMegabyte);
  const std::byte* const at = large.get();
  oldest.reset();
  large.reset();
  latest.reset();
  EXPECT_EQ(buffers->idle_bytes(), 3 * kMegabyte);
  EXPECT_EQ(buffers->Take(2 * kMegabyte).get(), at);
}

TEST_F(RecycledBuffersTest, LeavesSmallOnesToMalloc) {
  const auto buffers = RecycledBuffers::Make();
  buffers->Take(1000).reset();
  EXPECT_EQ(buffers->idle_bytes(), 0u);
}

TEST_F(RecycledBuffersTest, MayGoBeforeItsBlocks) {
  auto buffers = RecycledBuffers::Make();
  const Buffer block = buffers->Take(kMegabyte);
  buffers.reset();
  block[kMegabyte - 1] = std::byte{1};
}

TEST_F(RecycledBuffersTest, GivesUpWhatIsIdleBeforeItFails) {
  const auto account = std::make_shared<MemoryAccount>();
  account->SetLimit(static_cast<int64_t>(3 * kMegabyte));
  const ChargeTo charge(account.get());
  const auto buffers = RecycledBuffers::Make();
  EXPECT_NE(buffers->Take(2 * kMegabyte), nullptr);
  EXPECT_GT(buffers->idle_bytes(), 0u);
  EXPECT_NE(buffers->Take(2 * kMegabyte + kMegabyte / 2), nullptr);
  EXPECT_EQ(buffers->Take(4 * kMegabyte), nullptr);
}

}  // namespace
}  // namespace onnxd
