#include "server/batching/batch_policy.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

// Learned from a model whose batches take `fixed` and `each` for every row.
ServiceTimes Learned(double fixed, double each, int64_t largest) {
  ServiceTimes times;
  for (int64_t rows = 1; rows <= largest; rows *= 2) {
    for (int i = 0; i < 20; ++i) times.Record(rows, fixed + each * static_cast<double>(rows));
  }
  return times;
}

BatchSettings UpTo(int64_t rows) {
  BatchSettings settings;
  settings.max_batch_size = rows;
  return settings;
}

TEST(ServiceTimes, KnowsNothingAtFirst) {
  const ServiceTimes times;
  EXPECT_FALSE(times.Expected(1).has_value());
  EXPECT_FALSE(times.LoneP95().has_value());
  EXPECT_EQ(times.BestSize(64), 1);
}

TEST(ServiceTimes, ExpectsWhatItSawAndScalesTheNearestSize) {
  const ServiceTimes times = Learned(0, 2e-3, 4);
  EXPECT_NEAR(*times.Expected(1), 2e-3, 1e-9);
  EXPECT_NEAR(*times.Expected(4), 8e-3, 1e-9);
  EXPECT_NEAR(*times.Expected(16), 32e-3, 1e-9);
}

TEST(ServiceTimes, ExpectsSizesBetweenThoseItSawOnTheLineThatJoinsThem) {
  const ServiceTimes times = Learned(10e-3, 1e-3, 8);
  EXPECT_NEAR(*times.Expected(3), 13e-3, 1e-9);
  EXPECT_NEAR(*times.Expected(6), 16e-3, 1e-9);
}

TEST(ServiceTimes, ExpectsTheNextSizesOnTheLineOfTheLastTwo) {
  const ServiceTimes times = Learned(10e-3, 1e-3, 4);
  EXPECT_NEAR(*times.Expected(8), 18e-3, 1e-9);
  EXPECT_NEAR(*times.Expected(16), 4 * 14e-3, 1e-9);  // too far to know
}

TEST(ServiceTimes, BelievesNoMoreThan64TimesTheRowsItSaw) {
  ServiceTimes times = Learned(0, 0.4e-3, 1);
  EXPECT_NEAR(*times.Believed(10), 10 * 0.4e-3, 1e-9);
  EXPECT_NEAR(*times.Believed(64), 64 * 0.4e-3, 1e-9);
  EXPECT_NEAR(*times.Believed(1 << 18), 64 * 0.4e-3, 1e-9);
  times.Record(1 << 18, 0.2);
  EXPECT_NEAR(*times.Believed(1 << 20), 0.8, 1e-9);
  EXPECT_FALSE(ServiceTimes().Believed(1).has_value());
}

TEST(ServiceTimes, KeepsSixRowsApartFromEight) {
  ServiceTimes times = Learned(20e-3, 0, 4);
  for (int i = 0; i < 20; ++i) times.Record(6, 24e-3);
  for (int i = 0; i < 20; ++i) times.Record(8, 40e-3);
  EXPECT_NEAR(*times.Expected(6), 24e-3, 1e-9);
  EXPECT_NEAR(*times.Expected(8), 40e-3, 1e-9);
  EXPECT_EQ(times.BestSize(8), 6);
}

TEST(ServiceTimes, FollowsAModelThatBecomesSlower) {
  ServiceTimes times = Learned(0, 1e-3, 1);
  for (int i = 0; i < 60; ++i) times.Record(1, 5e-3);
  EXPECT_NEAR(*times.Expected(1), 5e-3, 1e-4);
}

TEST(ServiceTimes, GrowsBatchesWhileRowsBecomeCheaper) {
  EXPECT_EQ(Learned(1e-3, 1e-5, 1).BestSize(64), 2);  // 2 was never seen: the way to find out
  EXPECT_EQ(Learned(1e-3, 1e-5, 8).BestSize(64), 16);
  EXPECT_EQ(Learned(1e-3, 1e-5, 64).BestSize(64), 64);
  EXPECT_EQ(Learned(1e-3, 1e-5, 64).BestSize(40), 32);
  EXPECT_EQ(Learned(1e-3, 1e-5, 64).BestSize(48), 32);
}

TEST(ServiceTimes, KeepsBatchesSmallWhereRowsAreAsCheapAlone) {
  EXPECT_EQ(Learned(0, 1e-3, 4).BestSize(64), 1);
  EXPECT_EQ(Learned(1e-5, 1e-3, 64).BestSize(64), 1);  // 1% is not worth waiting for
}

TEST(ServiceTimes, TriesALostSizeAgainAfterAWhile) {
  ServiceTimes times = Learned(0, 1e-3, 2);
  EXPECT_EQ(times.BestSize(64), 1);
  for (int i = 0; i < 3000; ++i) times.Record(1, 1e-3);
  EXPECT_EQ(times.BestSize(64), 2);
}

TEST(ServiceTimes, P95OfLoneRowsLeavesOutTheRareSlowOne) {
  ServiceTimes times;
  for (int i = 0; i < 64; ++i) times.Record(1, i == 30 ? 1.0 : 1e-4);
  EXPECT_NEAR(*times.LoneP95(), 1e-4, 1e-9);
  for (int i = 0; i < 10; ++i) times.Record(1, 1.0);
  EXPECT_NEAR(*times.LoneP95(), 1.0, 1e-9);
}

TEST(BatchPolicy, ALoneRequestOfAnIdleServerDoesNotWait) {
  BatchView view;
  view.rows = 1;
  view.rows_per_second = 5;
  const BatchDecision decision = DecideBatch(view, Learned(1e-3, 1e-5, 64), UpTo(64));
  EXPECT_EQ(decision.rows, 1);
}

TEST(BatchPolicy, TakesNoMoreThanTheSizeThatPays) {
  BatchView view;
  view.rows = 40;
  EXPECT_EQ(DecideBatch(view, Learned(0, 1e-3, 4), UpTo(64)).rows, 1);
  EXPECT_EQ(DecideBatch(view, Learned(1e-3, 1e-5, 64), UpTo(64)).rows, 40);
  view.rows = 200;
  EXPECT_EQ(DecideBatch(view, Learned(1e-3, 1e-5, 64), UpTo(64)).rows, 64);
}

TEST(BatchPolicy, SharesRowsAmongIdleExecutors) {
  BatchView view;
  view.rows = 64;
  view.idle_executors = view.executors = 4;
  EXPECT_EQ(DecideBatch(view, Learned(1e-3, 1e-5, 64), UpTo(64)).rows, 16);
}

TEST(BatchPolicy, ADevicesBatchIsNotShared) {
  BatchView view;
  view.rows = 64;
  view.idle_executors = 4;
  view.on_device = true;
  EXPECT_EQ(DecideBatch(view, Learned(1e-3, 1e-5, 64), UpTo(64)).rows, 64);
}

TEST(BatchPolicy, WhatIsNotFullWaitsUntilTheDeviceIsNearlyFree) {
  const ServiceTimes times = Learned(1e-3, 1e-5, 64);  // 40 rows take 1.4 ms
  BatchView view;
  view.rows = 40;
  view.on_device = true;
  view.busy = 1e-3;
  EXPECT_EQ(DecideBatch(view, times, UpTo(64)).rows, 0);
  EXPECT_NEAR(DecideBatch(view, times, UpTo(64)).wait, 1e-3 - 0.2 * 1.4e-3, 1e-6);
  view.busy = 0.2e-3;
  EXPECT_EQ(DecideBatch(view, times, UpTo(64)).rows, 40);
  view.rows = 64;
  view.busy = 1e-3;
  EXPECT_EQ(DecideBatch(view, times, UpTo(64)).rows, 64);
}

TEST(BatchPolicy, ADeviceRunsFewSizes) {
  const auto sizes = [](const BatchSettings& settings) {
    std::vector<int64_t> all;
    for (int64_t rows = 1; rows <= settings.max_batch_size; ++rows) {
      const int64_t size = DeviceBatchSize(rows, settings);
      EXPECT_GE(size, rows);
      if (all.empty() || all.back() != size) all.push_back(size);
    }
    return all;
  };
  EXPECT_EQ(sizes(UpTo(64)), (std::vector<int64_t>{1, 2, 4, 8, 12, 16, 24, 32, 48, 64}));
  BatchSettings settings = UpTo(50);
  settings.preferred_batch_size = {20, 40};
  EXPECT_EQ(sizes(settings), (std::vector<int64_t>{1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 50}));
  EXPECT_EQ(DeviceBatchSize(7, UpTo(1)), 7);  // a request that runs alone
}

TEST(BatchPolicy, BusyExecutorsWaitForRowsThatComeSoon) {
  const ServiceTimes times = Learned(10e-3, 1e-4, 64);  // 64 rows take 16.4 ms
  BatchView view;
  view.rows = 60;
  view.rows_per_second = 3800;  // the missing four within 1.1 ms
  const BatchDecision decision = DecideBatch(view, times, UpTo(64));
  EXPECT_EQ(decision.rows, 0);
  EXPECT_NEAR(decision.wait, 4.1e-3, 1e-4);
  view.waited = 4.2e-3;
  EXPECT_EQ(DecideBatch(view, times, UpTo(64)).rows, 60);
  view.waited = 0;
  view.rows = 10;  // the missing ones would take 14 ms
  EXPECT_EQ(DecideBatch(view, times, UpTo(64)).rows, 10);
}

TEST(BatchPolicy, AnExplicitDelayIsPaidForAFullBatchWhateverWasMeasured) {
  const ServiceTimes times = Learned(0, 1e-3, 8);  // a batch takes as long as its rows alone
  BatchSettings settings = UpTo(8);
  BatchView view;
  view.rows = 7;
  EXPECT_GT(DecideBatch(view, times, settings).rows, 0);
  settings.max_queue_delay = 2e-3;
  EXPECT_EQ(DecideBatch(view, times, settings).rows, 0);
  view.rows = 8;
  EXPECT_EQ(DecideBatch(view, times, settings).rows, 8);
}

TEST(BatchPolicy, ExplicitDelayAndSizesAreObeyed) {
  BatchSettings settings = UpTo(32);
  settings.max_queue_delay = 2e-3;
  settings.preferred_batch_size = {4, 8};
  BatchView view;
  view.rows = 5;
  const ServiceTimes times;
  EXPECT_EQ(DecideBatch(view, times, settings).rows, 0);
  EXPECT_NEAR(DecideBatch(view, times, settings).wait, 2e-3, 1e-9);
  view.waited = 3e-3;
  EXPECT_EQ(DecideBatch(view, times, settings).rows, 4);
  view.rows = 9;
  EXPECT_EQ(DecideBatch(view, times, settings).rows, 8);
  view.rows = 3;
  EXPECT_EQ(DecideBatch(view, times, settings).rows, 3);
}

TEST(BatchPolicy, ATargetBoundsTheBatch) {
  BatchSettings settings = UpTo(64);
  settings.target_p99 = 8e-3;
  BatchView view;
  view.rows = 64;
  // 16 rows take 3.6 ms, 32 take 5.2.
  EXPECT_EQ(DecideBatch(view, Learned(2e-3, 1e-4, 64), settings).rows, 16);
}

}  // namespace
}  // namespace onnxd
