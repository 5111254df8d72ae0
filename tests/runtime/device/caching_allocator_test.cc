#include "runtime/device/caching_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace onnxd {
namespace {

using testing::HasSubstr;

struct Counted {
  int allocations = 0, frees = 0, refuse_from = -1;

  CachingAllocator::Source Source() {
    return {[this](size_t bytes) -> void* {
              if (refuse_from >= 0 && allocations >= refuse_from) return nullptr;
              ++allocations;
              return std::malloc(bytes);
            },
            [this](void* block) {
              ++frees;
              std::free(block);
            }};
  }
};

TEST(CachingAllocator, WhatWasFreedServesTheNextRequestOfThatSize) {
  Counted counted;
  const auto allocator = std::make_shared<CachingAllocator>(counted.Source(), 0);
  void* first = nullptr;
  {
    const auto buffer = allocator->Allocate(1000);
    ASSERT_TRUE(buffer.ok());
    first = buffer->get();
    EXPECT_EQ(allocator->usage().used, 1024u);
  }
  EXPECT_EQ(allocator->usage().used, 0u);
  EXPECT_EQ(allocator->usage().kept, 1024u);
  const auto again = allocator->Allocate(700);
  EXPECT_EQ(again->get(), first);
  EXPECT_EQ(counted.allocations, 1);
}

TEST(CachingAllocator, ABlockThatIsMuchLargerIsNotGivenAway) {
  Counted counted;
  const auto allocator = std::make_shared<CachingAllocator>(counted.Source(), 0);
  (void)allocator->Allocate(1 << 20);
  const auto small = allocator->Allocate(512);
  EXPECT_EQ(counted.allocations, 2);
}

TEST(CachingAllocator, TheLimitCountsWhatIsKeptAndGivesItBackBeforeItRefuses) {
  Counted counted;
  const auto allocator = std::make_shared<CachingAllocator>(counted.Source(), 8192);
  (void)allocator->Allocate(6000);
  const auto other = allocator->Allocate(4000);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(counted.frees, 1);
  const auto refused = allocator->Allocate(6000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("4096 are in use, the limit is 8192"));
}

TEST(CachingAllocator, ADeviceThatIsFullIsAskedAgainWithoutWhatIsKept) {
  Counted counted;
  const auto allocator = std::make_shared<CachingAllocator>(counted.Source(), 0);
  (void)allocator->Allocate(100);
  counted.refuse_from = 1;
  EXPECT_FALSE(allocator->Allocate(100000).ok());
  EXPECT_EQ(counted.frees, 1);
}

TEST(CachingAllocator, BuffersOutliveTheirAllocatorsOwner) {
  Counted counted;
  auto allocator = std::make_shared<CachingAllocator>(counted.Source(), 0);
  auto buffer = *allocator->Allocate(10);
  allocator.reset();
  EXPECT_EQ(counted.frees, 0);
  buffer.reset();
  EXPECT_EQ(counted.frees, 1);
}

TEST(CachingAllocator, ASizeThatOverflowsIsRefused) {
  Counted counted;
  const auto allocator = std::make_shared<CachingAllocator>(counted.Source(), 0);
  EXPECT_FALSE(allocator->Allocate(~size_t{0}).ok());
}

}  // namespace
}  // namespace onnxd
