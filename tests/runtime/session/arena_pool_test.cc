// What runs work in is kept for other runs, of other shapes, too.
#include "runtime/session/arena_pool.h"

#include <gtest/gtest.h>

#include "runtime/base/memory_account.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

Arena Taken(ArenaPool& pool, size_t bytes, const std::byte* preferred = nullptr) {
  auto arena = pool.Take(bytes, preferred);
  EXPECT_TRUE(arena.ok()) << arena.status().ToString();
  return *std::move(arena);
}

TEST(ArenaPool, ASmallerRunWorksInWhatALargerOneLeft) {
  ArenaPool pool;
  Arena large = Taken(pool, 1 << 20);
  const std::byte* const address = large.begin();
  pool.Return(std::move(large));
  EXPECT_EQ(Taken(pool, 100).begin(), address);
}

TEST(ArenaPool, RunsAtOnceHaveArenasOfTheirOwn) {
  ArenaPool pool;
  const Arena one = Taken(pool, 100), other = Taken(pool, 100);
  EXPECT_NE(one.begin(), other.begin());
}

TEST(ArenaPool, GivesTheSmallestThatIsLargeEnoughUnlessTheAskedForOneIs) {
  ArenaPool pool;
  Arena small = Taken(pool, 100), middle = Taken(pool, 200), large = Taken(pool, 300);
  const std::byte *const at_small = small.begin(), *const at_middle = middle.begin(),
                         *const at_large = large.begin();
  for (Arena* arena : {&large, &small, &middle}) pool.Return(std::move(*arena));
  Arena taken = Taken(pool, 150);
  EXPECT_EQ(taken.begin(), at_middle);
  pool.Return(std::move(taken));
  taken = Taken(pool, 150, at_large);
  EXPECT_EQ(taken.begin(), at_large);
  pool.Return(std::move(taken));
  EXPECT_EQ(Taken(pool, 150, at_small).begin(), at_middle);
}

TEST(ArenaPool, ALargerArenaTakesThePlaceOfTheLargest) {
  const auto account = std::make_shared<MemoryAccount>();
  const ChargeTo charge(account.get());
  ArenaPool pool;
  Arena small = Taken(pool, 1000), large = Taken(pool, 2000);
  pool.Return(std::move(small));
  pool.Return(std::move(large));
  const Arena larger = Taken(pool, 10'000);
  EXPECT_GE(account->bytes(), 11'000);
  EXPECT_LT(account->bytes(), 12'000);
}

TEST(ArenaPool, KeepsNoneAboveTheLimit) {
  const auto account = std::make_shared<MemoryAccount>();
  const ChargeTo charge(account.get());
  ArenaPool pool;
  Arena idle = Taken(pool, 5000);
  const Arena small = Taken(pool, 1000);
  Arena in_use = Taken(pool, 5000);
  pool.Return(std::move(idle));
  pool.LimitTo(4000);
  EXPECT_LT(account->bytes(), 7000);
  pool.Return(std::move(in_use));
  EXPECT_LT(account->bytes(), 2000);
}

TEST(ArenaPool, IdleArenasMakeRoomWhereMemoryIsShort) {
  const auto account = std::make_shared<MemoryAccount>();
  account->SetLimit(10'000);
  const ChargeTo charge(account.get());
  ArenaPool pool;
  Arena one = Taken(pool, 3000), other = Taken(pool, 3000);
  pool.Return(std::move(one));
  pool.Return(std::move(other));
  EXPECT_TRUE(pool.Take(9000, nullptr).ok());
  const auto refused = pool.Take(20'000, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
}

// y = x * w * w * w, where w doubles, of any number of rows.
TEST(ArenaPool, PlansOfOtherShapesWorkInOneArena) {
  TestModel model;
  model.Input("x", DataType::kFloat, {-1, 64});
  Tensor w = Tensor::Create(DataType::kFloat, Shape{64, 64}).value();
  for (int i = 0; i < 64 * 64; ++i) w.mutable_data<float>()[i] = i % 65 == 0 ? 2.0f : 0.0f;
  model.Constant("w", w);
  model.Node("MatMul", {"x", "w"}, {"a"}).Node("MatMul", {"a", "w"}, {"b"});
  model.Node("MatMul", {"b", "w"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const auto run = [&](int64_t rows) {
    Tensor x = Tensor::Create(DataType::kFloat, Shape{rows, 64}).value();
    for (int64_t i = 0; i < rows * 64; ++i) x.mutable_data<float>()[i] = static_cast<float>(i % 100);
    const auto outputs = (*session)->Run({{x}}, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    const Tensor& y = (*outputs)[0].tensor();
    for (int64_t i = 0; i < rows * 64; ++i) {
      ASSERT_EQ(y.data<float>()[i], 8.0f * static_cast<float>(i % 100)) << rows << " rows";
    }
  };
  // A plan whose arena was another one's in between, that grew, and that another plan grew.
  for (const int64_t rows : {8, 16, 8, 300, 16, 8, 1000, 300, 8}) run(rows);
}

}  // namespace
}  // namespace onnxd
