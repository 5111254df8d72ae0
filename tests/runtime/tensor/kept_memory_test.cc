#include "runtime/tensor/kept_memory.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "runtime/base/memory_account.h"

namespace onnxd {
namespace {

Tensor Numbers(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return Tensor::Of<float>(Shape{count}, values);
}

void ExpectNumbers(const Tensor& tensor, float first) {
  ASSERT_EQ(tensor.type(), DataType::kFloat);
  for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
    ASSERT_EQ(tensor.data<float>()[i], first + static_cast<float>(i));
  }
}

class KeptMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!KeptMemory::IsUsed()) GTEST_SKIP() << "AddressSanitizer watches each tensor by itself";
  }
};

TEST_F(KeptMemoryTest, LeavesTheFirstOnesWhereTheyAre) {
  KeptMemory memory(150000);
  for (const bool stays : {true, true, false}) {
    const Tensor tensor = Numbers(20000, 1);
    const Tensor kept = memory.Keep(tensor);
    EXPECT_EQ(kept.raw() == tensor.raw(), stays);
    ExpectNumbers(kept, 1);
  }
}

TEST_F(KeptMemoryTest, PutsTensorsSideBySide) {
  KeptMemory memory(0);
  const Tensor first = memory.Keep(Numbers(20001, 1)), second = memory.Keep(Numbers(30000, 5000));
  ExpectNumbers(first, 1);
  ExpectNumbers(second, 5000);
  const auto* begin = static_cast<const std::byte*>(first.raw());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % kTensorAlignment, 0u);
  EXPECT_EQ(second.raw(), begin + 80064);  // 80,004 bytes are 1,251 lines
}

TEST_F(KeptMemoryTest, LeavesWhatIsNotWorthItOrHasPagesOfItsOwn) {
  KeptMemory memory(0);
  const Tensor words = *Tensor::Create(DataType::kString, Shape{4000});
  for (const Tensor& tensor : {Numbers(1000, 0), Numbers(1 << 19, 0), words}) {
    EXPECT_EQ(memory.Keep(tensor).raw(), tensor.raw());
  }
}

// More than one region's worth; the first one outlives the others.
TEST_F(KeptMemoryTest, GoesOnWhereARegionIsFull) {
  KeptMemory memory(0);
  const int64_t count = 480 << 10;  // 1.9 MB
  std::vector<Tensor> kept;
  for (int i = 0; i < 20; ++i) kept.push_back(memory.Keep(Numbers(count, static_cast<float>(i))));
  kept.erase(kept.begin() + 1, kept.end());
  ExpectNumbers(kept[0], 0);
  ExpectNumbers(memory.Keep(Numbers(20000, 7)), 7);
}

TEST_F(KeptMemoryTest, ChargesTheModelUntilTheTensorIsFreed) {
  KeptMemory memory(0);
  const auto account = std::make_shared<MemoryAccount>();
  const Tensor tensor = Numbers(20000, 1);
  Tensor kept;
  {
    ChargeTo charge(account.get());
    kept = memory.Keep(tensor);
  }
  EXPECT_NE(kept.raw(), tensor.raw());
  EXPECT_EQ(account->bytes(), 80000);
  kept = Tensor();
  EXPECT_EQ(account->bytes(), 0);
  account->SetLimit(79999);
  ChargeTo charge(account.get());
  EXPECT_EQ(memory.Keep(tensor).raw(), tensor.raw());
  EXPECT_EQ(account->bytes(), 0);
}

}  // namespace
}  // namespace onnxd
