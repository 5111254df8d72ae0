#include "runtime/base/memory_account.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace onnxd {
namespace {

std::shared_ptr<MemoryAccount> Limited(int64_t bytes) {
  auto account = std::make_shared<MemoryAccount>();
  account->SetLimit(bytes);
  return account;
}

TEST(MemoryAccount, CountsInTheWholeAsWell) {
  const auto whole = Limited(100);
  MemoryAccount a(whole), b(whole);
  EXPECT_TRUE(a.Add(60));
  EXPECT_FALSE(b.Add(41));
  EXPECT_EQ(b.refusals(), 1);
  EXPECT_EQ(whole->bytes(), 60);
  EXPECT_TRUE(b.Add(40));
  a.Release(60);
  EXPECT_EQ(whole->bytes(), 40);
}

TEST(MemoryAccount, AReservationHoldsUntilItIsUsedUp) {
  const auto whole = Limited(100);
  MemoryAccount account(whole);
  EXPECT_TRUE(account.Reserve(50));
  EXPECT_EQ(whole->bytes(), 50);
  EXPECT_TRUE(account.Add(30));
  EXPECT_EQ(whole->bytes(), 50);
  EXPECT_TRUE(account.Add(30));
  EXPECT_EQ(whole->bytes(), 60);
  account.Release(40);
  EXPECT_EQ(whole->bytes(), 50);
  EXPECT_TRUE(account.Reserve(0));
  EXPECT_EQ(whole->bytes(), 20);
  EXPECT_FALSE(account.Reserve(101));
  EXPECT_EQ(whole->bytes(), 20);
}

TEST(MemoryAccount, GivesAnUnusedReservationBackAtItsEnd) {
  const auto whole = Limited(100);
  { EXPECT_TRUE(MemoryAccount(whole).Reserve(70)); }
  EXPECT_EQ(whole->bytes(), 0);
}

TEST(MemoryAccount, TensorsCountWhereTheyWereMadeUntilTheyAreFreedAnywhere) {
  const auto account = std::make_shared<MemoryAccount>();
  Tensor tensor;
  {
    const ChargeTo charge(account.get());
    tensor = *Tensor::Create(DataType::kFloat, Shape{256});
    const ChargeTo none(nullptr);
    const Tensor elsewhere = *Tensor::Create(DataType::kFloat, Shape{256});
  }
  EXPECT_GE(account->bytes(), 1024);
  EXPECT_LT(account->bytes(), 2048);
  std::thread([moved = std::move(tensor)]() mutable { moved = Tensor(); }).join();
  EXPECT_EQ(account->bytes(), 0);
}

TEST(MemoryAccount, NoTensorPassesItsLimit) {
  const auto account = Limited(4096);
  const ChargeTo charge(account.get());
  EXPECT_TRUE(Tensor::Create(DataType::kFloat, Shape{512}).ok());
  EXPECT_EQ(Tensor::Create(DataType::kFloat, Shape{2048}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(account->bytes(), 0);
}

TEST(MemoryAccount, ManyThreadsAgreeOnTheSum) {
  const auto whole = Limited(1000);
  const auto account = std::make_shared<MemoryAccount>(whole);
  ASSERT_TRUE(account->Reserve(10));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        if (account->Add(7)) account->Release(7);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(account->bytes(), 0);
  EXPECT_EQ(whole->bytes(), 10);
}

}  // namespace
}  // namespace onnxd
