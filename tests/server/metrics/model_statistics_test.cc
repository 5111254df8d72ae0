#include "server/metrics/model_statistics.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using namespace std::chrono_literals;

TEST(ModelStatistics, ARequestCountsItsRunsWholeTime) {
  ModelStatistics statistics;
  statistics.CountRun(6, 3, {1ns, 10ns, 2ns});
  statistics.CountRun(1, 1, {0ns, 4ns, 0ns});
  const auto totals = statistics.totals();
  EXPECT_EQ(totals.inferences, 7u);
  EXPECT_EQ(totals.executions, 2u);
  EXPECT_EQ(totals.requests.run.count, 4u);
  EXPECT_EQ(totals.requests.run.nanoseconds, 34u);
  EXPECT_EQ(totals.batches.at(6).run.count, 1u);
  EXPECT_EQ(totals.batches.at(6).output.nanoseconds, 2u);
}

TEST(ModelStatistics, OnlySuccessIsAnInference) {
  ModelStatistics statistics;
  statistics.CountAnswer(false, 5ns);
  EXPECT_EQ(statistics.totals().last_inference_ms, 0);
  statistics.CountAnswer(true, 7ns);
  EXPECT_GT(statistics.totals().last_inference_ms, 0);
  EXPECT_EQ(statistics.totals().failure.nanoseconds, 5u);
  EXPECT_EQ(statistics.totals().success.count, 1u);
}

TEST(ModelStatistics, TheTableOfSizesStaysSmall) {
  ModelStatistics statistics;
  for (int64_t rows = 1; rows <= 1000; ++rows) statistics.CountRun(rows, 1, {});
  statistics.CountRun(0, 1, {});
  const auto totals = statistics.totals();
  EXPECT_EQ(totals.batches.size(), 256u);
  uint64_t runs = 0;
  for (const auto& [rows, run] : totals.batches) runs += run.run.count;
  EXPECT_EQ(runs, totals.executions);
}

}  // namespace
}  // namespace onnxd
